module github.com/objecthost/objecthost/storage

go 1.26.0

require (
	github.com/objecthost/objecthost/core v0.0.0
)

replace (
	github.com/objecthost/objecthost/core => ../core
)

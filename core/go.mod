module github.com/objecthost/objecthost/core

go 1.26.0


module github.com/objecthost/objecthost/plugins/webhooks

go 1.26.0

require (
	github.com/objecthost/objecthost/core v0.0.0
	github.com/objecthost/objecthost/storage v0.0.0
	github.com/objecthost/objecthost/services/realtime v0.0.0
	github.com/objecthost/objecthost/services/messaging v0.0.0
	github.com/objecthost/objecthost/services/data v0.0.0
)

replace (
	github.com/objecthost/objecthost/core => ../../core
	github.com/objecthost/objecthost/storage => ../../storage
	github.com/objecthost/objecthost/services/realtime => ../../services/realtime
	github.com/objecthost/objecthost/services/messaging => ../../services/messaging
	github.com/objecthost/objecthost/services/data => ../../services/data
)

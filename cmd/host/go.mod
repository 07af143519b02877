module github.com/objecthost/objecthost/cmd/host

go 1.26.0

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/google/wire v0.7.0
	github.com/knadh/koanf/v2 v2.4.1
	github.com/objecthost/objecthost/core v0.0.0
	github.com/objecthost/objecthost/plugins/webhooks v0.0.0
	github.com/objecthost/objecthost/services/auth v0.0.0
	github.com/objecthost/objecthost/services/data v0.0.0
	github.com/objecthost/objecthost/services/messaging v0.0.0
	github.com/objecthost/objecthost/services/realtime v0.0.0
	github.com/objecthost/objecthost/services/rest v0.0.0
	github.com/objecthost/objecthost/storage v0.0.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/spf13/cobra v1.10.2
)

require (
	github.com/go-viper/mapstructure/v2 v2.4.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/knadh/koanf/maps v0.1.2 // indirect
	github.com/mitchellh/copystructure v1.2.0 // indirect
	github.com/mitchellh/reflectwalk v1.0.2 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace (
	github.com/objecthost/objecthost/core => ../../core
	github.com/objecthost/objecthost/plugins/webhooks => ../../plugins/webhooks
	github.com/objecthost/objecthost/services/auth => ../../services/auth
	github.com/objecthost/objecthost/services/data => ../../services/data
	github.com/objecthost/objecthost/services/messaging => ../../services/messaging
	github.com/objecthost/objecthost/services/realtime => ../../services/realtime
	github.com/objecthost/objecthost/services/rest => ../../services/rest
	github.com/objecthost/objecthost/storage => ../../storage
)

// Package plugintest runs a plugin under go test, in the test's process,
// against a host made of maps.
//
//	h := plugintest.Start(t, crm.New(), plugintest.Config{})
//	h.Host.Put("crm_account", pluginsdk.Record{"name": "Ada"})
//	changes, err := h.BeforeWrite(pluginsdk.Write{Object: "crm_account", Operation: "create", Values: ...})
//
// The fake host keeps records by object without looking at definitions: no
// validation, no capabilities, queries by equality only. What a plugin does to a
// real host is tested with pluginhost/hosttest.
package plugintest

package rest

// PluginID is the id of the HTTP server's plugin.
const PluginID = "com.objectstack.service.rest"

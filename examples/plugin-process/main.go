// Command plugin-process is a plugin that runs in a process of its own. What it
// does is in package crm; this is all that makes a program of it.
package main

import (
	"github.com/objecthost/objecthost/examples/plugin-process/crm"
	"github.com/objecthost/objecthost/pluginsdk"
)

func main() { pluginsdk.Serve(crm.New()) }

// Command tiny is a plugin that does nothing, for tests that start many. Its id
// lies beside it in the file id.
package main

import (
	"context"
	"os"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginsdk"
)

func main() {
	id, err := os.ReadFile("id")
	if err != nil {
		panic(err)
	}
	pluginsdk.Serve(plugin(id))
}

type plugin string

func (p plugin) Manifest() core.Manifest {
	return core.Manifest{ID: string(p), Version: "1.0.0"}
}

func (p plugin) Init(context.Context, core.Context) error { return nil }

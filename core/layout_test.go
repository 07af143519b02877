package core_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/objecthost/objecthost/core"

// sources parses all Go files below core, by folder.
func sources(t *testing.T) map[string]map[string]*ast.File {
	t.Helper()
	folders := map[string]map[string]*ast.File{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(name))
		if folders[dir] == nil {
			folders[dir] = map[string]*ast.File{}
		}
		folders[dir][filepath.Base(name)] = file
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if folders["."]["kernel.go"] == nil {
		t.Fatal("the sources of package core were not found")
	}
	return folders
}

// Core, and every package below it, needs nothing but the standard library.
func TestOnlyTheStandardLibrary(t *testing.T) {
	t.Parallel()
	for dir, files := range sources(t) {
		for name, file := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, spec := range file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				first, _, _ := strings.Cut(imported, "/")
				if strings.Contains(first, ".") && imported != module && !strings.HasPrefix(imported, module+"/") {
					t.Errorf("%s imports %s", path.Join(dir, name), imported)
				}
			}
		}
	}
}

func TestOnePackageComment(t *testing.T) {
	t.Parallel()
	for dir, files := range sources(t) {
		var with []string
		for name, file := range files {
			if file.Doc != nil && !strings.HasSuffix(name, "_test.go") {
				with = append(with, name)
			}
		}
		if len(with) != 1 {
			t.Errorf("%s has %d package comments: %q", path.Join(module, dir), len(with), with)
		}
	}
}

package rest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// consoleBase is where a web console is served.
const consoleBase = "/_console/"

// console is a web console: the files of a folder, whose index.html stands for
// every path that is no file, because the console's pages exist in the browser
// only.
type console struct {
	root  *os.Root
	index []byte
	// policy is the content security policy of the page.
	policy string
}

// openConsole opens the folder. Files outside of it cannot be reached, whatever
// the path says and links point at.
func openConsole(dir string) (*console, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("rest: open the console: %w", err)
	}
	index, err := root.ReadFile("index.html")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rest: the folder %s holds no console: %w", dir, err), root.Close())
	}
	index = withBase(index)
	return &console{root: root, index: index, policy: policyOf(index)}, nil
}

var (
	headTag      = regexp.MustCompile(`(?i)<head[^>]*>`)
	inlineScript = regexp.MustCompile(`(?is)<script(?:\s+[^>]*)?>(.*?)</script>`)
	scriptSource = regexp.MustCompile(`(?is)^<script[^>]*\ssrc\s*=`)
)

// withBase makes the relative paths of the page start at the console's base,
// also on its deeper pages.
func withBase(index []byte) []byte {
	at := headTag.FindIndex(index)
	if at == nil {
		return index
	}
	return bytes.Join([][]byte{index[:at[1]], []byte(`<base href="` + consoleBase + `">`), index[at[1]:]}, nil)
}

// policyOf lets the page run its own files, and the scripts that stand in it by
// their hashes: a script that somebody manages to inject has none.
func policyOf(index []byte) string {
	scripts := []string{"'self'"}
	for _, match := range inlineScript.FindAllSubmatch(index, -1) {
		if scriptSource.Match(match[0]) {
			continue
		}
		sum := sha256.Sum256(match[1])
		scripts = append(scripts, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	return strings.Join([]string{
		"default-src 'self'", "script-src " + strings.Join(scripts, " "), "style-src 'self' 'unsafe-inline'", "img-src 'self' data: blob:",
		"font-src 'self' data:", "connect-src 'self'", "worker-src 'self' blob:", "manifest-src 'self' blob:", "object-src 'none'", "base-uri 'self'", "form-action 'self'", "frame-ancestors 'none'",
	}, "; ")
}

func (s *Server) consoleRoutes() []OwnedRoute {
	if s.console == nil {
		return nil
	}
	return []OwnedRoute{
		own(http.MethodGet, consoleBase+"{path...}", "Serve the web console", s.console.serve, unasked),
		own(http.MethodGet, "/{$}", "Lead to the web console", func(w http.ResponseWriter, r *http.Request) error {
			http.Redirect(w, r, consoleBase, http.StatusFound)
			return nil
		}, unasked),
	}
}

// consoleTypes are media types that systems know by different names, or not.
var consoleTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".json": "application/json", ".map": "application/json", ".svg": "image/svg+xml", ".wasm": "application/wasm", ".woff2": "font/woff2",
	".webmanifest": "application/manifest+json",
}

// serve answers with a file, or with the page for a path that is none. A path
// that looks like a file, by its ending, is not answered with the page: a
// browser would take it for the script that it asked for.
func (c *console) serve(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("path")
	if name == "" || name == "index.html" || path.Ext(name) == "" && !c.holds(name) {
		return c.page(w)
	}
	file, err := c.root.Open(path.Clean(name))
	if err != nil {
		return resourceNotFound(fmt.Sprintf("File %s not found", clip(name)))
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return resourceNotFound(fmt.Sprintf("File %s not found", clip(name)))
	}
	h := w.Header()
	h.Set("Content-Type", typeOf(name))
	h.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(name, "assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable") // their names change with their content
	}
	http.ServeContent(w, r, name, info.ModTime(), file)
	return nil
}

// holds reports whether there is such a file.
func (c *console) holds(name string) bool {
	info, err := fs.Stat(c.root.FS(), path.Clean(name))
	return err == nil && info.Mode().IsRegular()
}

func typeOf(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if known := consoleTypes[ext]; known != "" {
		return known
	}
	if known := mime.TypeByExtension(ext); known != "" {
		return known
	}
	return "application/octet-stream"
}

func (c *console) page(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Content-Type", consoleTypes[".html"])
	h.Set("Content-Security-Policy", c.policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Length", strconv.Itoa(len(c.index)))
	_, _ = io.Copy(w, bytes.NewReader(c.index)) // the client has gone away when this fails
	return nil
}

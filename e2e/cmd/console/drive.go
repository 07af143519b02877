package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/objecthost/objecthost/e2e/proc"
)

// patience is how long the page may take for one thing.
const patience = 30 * time.Second

// visit is a user in front of the console.
type visit struct {
	host    *proc.Host
	browser context.Context
	shots   string
	failed  []string
	passed  int

	mu         sync.Mutex
	exceptions []string
}

// drive opens the browser and does what a user does.
func drive(ctx context.Context, host *proc.Host, browser, shots string) (string, error) {
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(browser), chromedp.Headless, chromedp.WindowSize(1400, 1000)}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	allocator, closeAllocator := chromedp.NewExecAllocator(ctx, options...)
	defer closeAllocator()
	tab, closeTab := chromedp.NewContext(allocator)
	defer closeTab()
	if err := chromedp.Do(tab, chromedp.Navigate("about:blank")); err != nil {
		return "", fmt.Errorf("start the browser: %w", err)
	}
	v := &visit{host: host, browser: tab, shots: shots}
	go v.listen()

	received := make(chan struct{}, 16)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received <- struct{}{} }))
	defer receiver.Close()

	v.check("the page is served with its own policy", v.policy)
	v.check("sign in", v.signIn)
	v.check("navigation", func() error { return v.text("Accounts", "Webhooks", "HTTP Deliveries", "Flow Runs") })
	var id string
	v.check("object list", func() (err error) {
		if id, err = v.create("account", map[string]any{"name": "Listed in the console", "industry": "finance"}); err != nil {
			return err
		}
		return v.open("account", "Listed in the console", "Finance")
	})
	v.check("create form", v.createForm)
	v.check("record page", func() error {
		if err := v.navigate("account/record/" + id); err != nil {
			return err
		}
		return v.text("Listed in the console", "Finance", "Edit")
	})
	v.check("webhook list", func() error {
		if _, err := v.create("sys_webhook", map[string]any{
			"name": "console_hook", "label": "Console hook", "object_name": "account", "triggers": []string{"create"}, "url": receiver.URL + "/console", "definition_json": "{}",
		}); err != nil {
			return err
		}
		return v.open("sys_webhook", "Console hook", receiver.URL+"/console")
	})
	v.check("HTTP delivery list", func() error {
		if _, err := v.create("account", map[string]any{"name": "Delivered"}); err != nil {
			return err
		}
		select {
		case <-received:
		case <-time.After(patience):
			return errors.New("the webhook was not called")
		}
		if err := v.open("sys_http_delivery", "Recent"); err != nil {
			return err
		}
		if err := v.click("Recent"); err != nil {
			return err
		}
		return v.text(receiver.URL+"/console", "success")
	})
	v.check("no page failed", v.nothingBroke)
	if len(v.failed) > 0 {
		return "", fmt.Errorf("%d of %d checks failed: %s", len(v.failed), v.passed+len(v.failed), strings.Join(v.failed, ", "))
	}
	return fmt.Sprintf("%d checks passed", v.passed), nil
}

// check runs one check and goes on after a failure.
func (v *visit) check(name string, do func() error) {
	err := do()
	if v.shots != "" {
		if picture, shotErr := chromedp.Run(v.browser, chromedp.CaptureScreenshot()); shotErr == nil {
			err = errors.Join(err, os.WriteFile(filepath.Join(v.shots, strings.ReplaceAll(name, " ", "-")+".png"), picture, 0o600))
		}
	}
	if err != nil {
		v.failed = append(v.failed, name)
		fmt.Printf("FAIL  %s\n      %v\n", name, err)
		return
	}
	v.passed++
	fmt.Printf("ok    %s\n", name)
}

// listen collects what the page throws, until the browser ends.
func (v *visit) listen() {
	for message, err := range chromedp.Console(v.browser) {
		if err != nil {
			return
		}
		if message.IsException() || strings.Contains(message.Text, "Content Security Policy") {
			v.mu.Lock()
			v.exceptions = append(v.exceptions, message.Text)
			v.mu.Unlock()
		}
	}
}

func (v *visit) do(action chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(v.browser, patience)
	defer cancel()
	return chromedp.Do(ctx, action)
}

// navigate opens a page of the console's only app.
func (v *visit) navigate(path string) error {
	return v.do(chromedp.Navigate(v.host.URL + "/_console/apps/objecthost/" + path))
}

// until waits for a JavaScript expression to be true, over changes of the page.
func (v *visit) until(what, expression string) error {
	ctx, cancel := context.WithTimeout(v.browser, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression)); err == nil && holds {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			shown, _ := chromedp.Run(v.browser, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText.slice(0, 2000)`))
			return fmt.Errorf("%s within %s; the page shows %s", what, patience, shown)
		}
	}
}

// text waits for the page to show texts.
func (v *visit) text(texts ...string) error {
	for _, text := range texts {
		quoted, err := json.Marshal(strings.ToLower(text))
		if err != nil {
			return err
		}
		if err := v.until(fmt.Sprintf("%q is not shown", text), "document.body.innerText.toLowerCase().includes("+string(quoted)+")"); err != nil {
			return err
		}
	}
	return nil
}

// open opens the list of an object and waits for what it shows.
func (v *visit) open(object string, texts ...string) error {
	if err := v.navigate(object); err != nil {
		return err
	}
	return v.text(texts...)
}

// click clicks the button or tab with a text, once it is there.
func (v *visit) click(text string) error {
	button := fmt.Sprintf(`[...document.querySelectorAll("main button, [role=dialog] button, [role=tab]")].find((b) => b.innerText.trim() === %q)`, text)
	if err := v.until(fmt.Sprintf("there is no button %q", text), "!!"+button); err != nil {
		return err
	}
	_, err := chromedp.Run(v.browser, chromedp.Evaluate[bool](button+".click(), true"))
	return err
}

// policy looks at the answer to the page itself.
func (v *visit) policy() error {
	answer, err := http.Get(v.host.URL + "/_console/apps/anything")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	policy := answer.Header.Get("Content-Security-Policy")
	if answer.StatusCode != http.StatusOK || !bytes.Contains(page, []byte(`<base href="/_console/">`)) || strings.Contains(policy, "unsafe-eval") || !strings.Contains(policy, "script-src 'self' 'sha256-") {
		return fmt.Errorf("status %d, policy %s", answer.StatusCode, policy)
	}
	return nil
}

func (v *visit) signIn() error {
	err := v.do(chromedp.Steps(
		chromedp.Navigate(v.host.URL+"/_console/"), chromedp.WaitVisible(chromedp.CSS("#login-email")),
		chromedp.SendKeys(chromedp.CSS("#login-email"), adminEmail), chromedp.SendKeys(chromedp.CSS("#login-password"), adminPassword+"\r"),
	))
	if err != nil {
		return err
	}
	return v.until("the console's app does not open", `location.pathname.startsWith("/_console/apps/objecthost")`)
}

// createForm fills in the form and compares the record that it makes.
func (v *visit) createForm() error {
	const name = "Made in the console"
	if err := v.open("account", "Listed in the console"); err != nil {
		return err
	}
	if err := v.click("New"); err != nil {
		return err
	}
	if err := v.do(chromedp.Steps(chromedp.WaitVisible(chromedp.CSS("input[name=name]")), chromedp.SendKeys(chromedp.CSS("input[name=name]"), name))); err != nil {
		return err
	}
	if err := v.click("Create"); err != nil {
		return err
	}
	if err := v.until("the form stays open", `new URLSearchParams(location.search).get("form") === null`); err != nil {
		return err
	}
	if err := v.text(name); err != nil {
		return err
	}
	var found struct {
		Records []struct {
			Name   string `json:"name"`
			Active bool   `json:"active"`
		} `json:"records"`
	}
	if err := v.api(http.MethodPost, "/api/v1/data/account/query", map[string]any{"where": map[string]any{"name": name}}, &found); err != nil {
		return err
	}
	if len(found.Records) != 1 || !found.Records[0].Active {
		return fmt.Errorf("the host has %+v", found.Records)
	}
	return nil
}

// nothingBroke looks at what the pages and the host have told meanwhile.
func (v *visit) nothingBroke() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.exceptions) > 0 {
		return fmt.Errorf("the pages threw: %s", strings.Join(v.exceptions, "; "))
	}
	served := 0
	for line := range strings.Lines(v.host.Output()) {
		var request struct {
			Msg, Method, Path string
			Status            int
		}
		if json.Unmarshal([]byte(line), &request) != nil || request.Msg != "request" {
			continue
		}
		served++
		// Parts of the original that this host lacks are answered 404; all other
		// refusals would be requests that the console makes and the host misreads.
		if request.Status >= 400 && request.Status != http.StatusNotFound && request.Status != http.StatusUnauthorized {
			return fmt.Errorf("%s %s was answered %d", request.Method, request.Path, request.Status)
		}
	}
	if served < 100 {
		return fmt.Errorf("the host's log has %d requests", served)
	}
	return nil
}

// create makes a record and returns its id.
func (v *visit) create(object string, record map[string]any) (string, error) {
	var made struct {
		ID string `json:"id"`
	}
	err := v.api(http.MethodPost, "/api/v1/data/"+object, record, &made)
	return made.ID, err
}

// api calls the host beside the browser.
func (v *visit) api(method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(v.browser, method, v.host.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("X-API-Key", v.host.Key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	return json.Unmarshal(text, out)
}

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/receiver"
	"github.com/objecthost/objecthost/cmd/host/internal/settings"
)

func receiveCommand(env environment) *cobra.Command {
	var (
		listen, secret string
		answer         int
	)
	c := &cobra.Command{
		Use: "receive", Short: "Receive deliveries and print them, to try webhooks out", Args: cobra.NoArgs,
		Example: "  host receive --secret s3cret --listen 127.0.0.1:9000",
	}
	flags := c.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:9000", "address to listen on")
	flags.StringVar(&secret, "secret", "", "secret that the deliveries are signed with")
	flags.IntVar(&answer, "answer", 200, "status to answer, 200 to 599")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if answer < 200 || answer > 599 {
			return &settings.Error{Source: "--answer", Message: fmt.Sprintf("must be 200 to 599, not %d", answer)}
		}
		ctx, stop := untilSignal(c.Context())
		defer stop()
		return receive(ctx, listen, secret, answer, env)
	}
	return c
}

func receive(ctx context.Context, listen, secret string, answer int, env environment) error {
	var mu sync.Mutex // one request's lines stay together
	r := &receiver.Receiver{
		Secret: []byte(secret),
		Decide: func(receiver.Request) int { return answer },
		Arrived: func(got receiver.Request) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(env.stdout, "%s %s attempt %d, %s, answered %d\n%s\n", got.At.Format("15:04:05.000"), printable(got.Event), got.Attempt, verdict(got, secret), got.Answer, printable(string(got.Body)))
		},
	}
	addr, err := r.Listen(ctx, listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.stdout, "receiving on http://%s\n", addr)
	<-ctx.Done()
	return nil
}

// printable replaces what would move a terminal's cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, s)
}

// verdict tells about the signature of a request.
func verdict(got receiver.Request, secret string) string {
	switch {
	case got.Verified:
		return "signature verified"
	case !got.Signed:
		return "not signed"
	case secret == "":
		return "signed, not checked: no --secret given"
	}
	return "SIGNATURE WRONG"
}

package main

import (
	"context"
	"io"
	"net"
	"net/http"
)

// Receiver is who wants to know of orders, here within the same program.
type Receiver struct {
	server *http.Server
	addr   string
	bodies chan string
}

// listen starts a receiver on a free port.
func listen() (*Receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Receiver{addr: l.Addr().String(), bodies: make(chan string, 16)}
	r.server = &http.Server{Handler: http.HandlerFunc(r.receive)}
	go func() { _ = r.server.Serve(l) }() // ends with Close
	return r, nil
}

// URL is where the receiver is called.
func (r *Receiver) URL() string { return "http://" + r.addr + "/orders" }

// Close ends the receiver.
func (r *Receiver) Close() { _ = r.server.Close() }

// Next returns the body of the next call.
func (r *Receiver) Next(ctx context.Context) (string, error) {
	select {
	case body := <-r.bodies:
		return body, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	r.bodies <- string(body)
}

// A plug-in of Pillion by Go's standard library alone: it writes each indication to standard
// error. See docs/plugins.md.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	messageLimit = 4 << 20 // bytes of a line
	inFlight     = 5
)

type request struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

type command struct {
	Timeout    float64 `json:"timeout"`
	Indication struct {
		Class      string         `json:"class"`
		Properties map[string]any `json:"properties"`
	} `json:"indication"`
}

type result struct {
	Outcome string `json:"outcome"`
	Detail  string `json:"detail,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Deliver one indication. It returns an error for a failed attempt. A real one has a time limit of
// its own: what runs on after its time-out is not ended by anybody.
func deliver(one command) error {
	_, err := fmt.Fprintf(os.Stderr, "%s: %v\n", one.Indication.Class, one.Indication.Properties["PerceivedSeverity"])
	return err
}

var writing sync.Mutex

func write(id json.RawMessage, member string, value any) {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, member: value})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// Answer a command once: with its result, or at its time-out. The time runs from here.
func attempt(id json.RawMessage, one command) {
	done := make(chan error, 1)
	go func() { done <- deliver(one) }()
	select {
	case err := <-done:
		if err != nil {
			write(id, "result", result{"error", err.Error()})
		} else {
			write(id, "result", result{Outcome: "success"})
		}
	case <-time.After(time.Duration(one.Timeout * float64(time.Second))):
		write(id, "result", result{"error", "timed out"})
	}
}

func handle(line []byte, running *sync.WaitGroup) (ends bool) {
	var one request
	if json.Unmarshal(line, &one) != nil {
		write(nil, "error", rpcError{-32700, "the line is not JSON"})
		return false
	}
	if len(one.ID) == 0 { // a notification
		return one.Method == "shutdown"
	}
	switch one.Method {
	case "initialize":
		var params struct{ ProtocolVersions []int }
		if json.Unmarshal(one.Params, &params) != nil || !slices.Contains(params.ProtocolVersions, 1) {
			write(one.ID, "error", rpcError{-32602, "protocolVersions: 1 is missing"})
			return false
		}
		write(one.ID, "result", map[string]any{
			"protocolVersion": 1, "name": "go-example", "version": "1", "inFlight": inFlight,
		})
	case "deliver":
		var params command
		if err := json.Unmarshal(one.Params, &params); err != nil {
			write(one.ID, "error", rpcError{-32602, err.Error()})
			return false
		}
		running.Add(1)
		go func() { defer running.Done(); attempt(one.ID, params) }()
	default:
		write(one.ID, "error", rpcError{-32601, "no such method"})
	}
	return false
}

// readLine returns the next line, or an error if it is too long.
func readLine(input *bufio.Reader) ([]byte, error) {
	line, err := input.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("a line has more than %d bytes", messageLimit)
	}
	return bytes.Clone(line), err
}

func main() {
	var running sync.WaitGroup
	input := bufio.NewReaderSize(os.Stdin, messageLimit+1)
	for {
		line, err := readLine(input)
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if handle(line, &running) {
			break
		}
	}
	running.Wait() // each ends by its time-out
}

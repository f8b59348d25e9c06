// A program for images that have nothing else: the pause container of each pod, and in tests a pod's server,
// client, and reader and writer of files.
//
//	probe                     wait for SIGTERM, and reap what is left to process 1
//	probe serve ADDRESS TEXT  answer TEXT by HTTP until SIGTERM; log "serving ADDRESS"
//	probe get URL             print what is answered
//	probe lookup NAME         print the addresses of a name
//	probe write FILE TEXT     write a file
//	probe read FILE           print a file
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch name := first(arguments); {
	case name == "" && len(arguments) == 0:
		return pause()
	case name == "serve" && len(arguments) == 3:
		return serve(arguments[1], arguments[2])
	case name == "get" && len(arguments) == 2:
		return get(arguments[1])
	case name == "lookup" && len(arguments) == 2:
		return lookup(arguments[1])
	case name == "write" && len(arguments) == 3:
		return os.WriteFile(arguments[1], []byte(arguments[2]), 0o644)
	case name == "read" && len(arguments) == 2:
		return read(arguments[1])
	}
	return fmt.Errorf("probe: cannot do %q; see the comment at its beginning", arguments)
}

func first(arguments []string) string {
	if len(arguments) == 0 {
		return ""
	}
	return arguments[0]
}

func pause() error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for got := range signals {
		if got != syscall.SIGCHLD {
			return nil
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

func serve(address, text string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("serving", address)
	server := &http.Server{Handler: http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		fmt.Fprintln(answer, text)
	})}
	go func() {
		<-ended.Done()
		server.Close()
	}()
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	fmt.Println("ended")
	return nil
}

func get(url string) error {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return nil
}

func lookup(name string) error {
	limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(limited, name)
	for _, address := range addresses {
		fmt.Println(address)
	}
	return err
}

func read(path string) error {
	content, err := os.ReadFile(path)
	if err == nil {
		_, err = os.Stdout.Write(content)
	}
	return err
}

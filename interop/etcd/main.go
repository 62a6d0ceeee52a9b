// SPDX-License-Identifier: Apache-2.0

// etcd's own concurrency.Mutex behind one line in, one line out (interop/README.md has the
// protocol). Every ID has a goroutine that carries out its commands in order, so a wait blocks only
// its own ID. With arguments it measures itself instead (bench.go).
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

var errBusy = errors.New("busy")

var (
	output  sync.Mutex
	clients sync.Map // client -> *clientv3.Client
)

// The clock that all drivers share; Go's own monotonic time starts with the process.
func micros() int64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0)
	return t.Sec*1e6 + t.Nsec/1e3
}

func say(id, status, words string) {
	output.Lock()
	defer output.Unlock()
	line := fmt.Sprintf("%s %s %d %s", id, status, micros(), words)
	fmt.Println(strings.TrimSpace(strings.ReplaceAll(line, "\n", " ")))
}

func answer(id, words string, err error) {
	switch {
	case errors.Is(err, errBusy):
		say(id, "busy", "")
	case err != nil:
		say(id, "error", err.Error())
	default:
		say(id, "ok", words)
	}
}

// ---- One ID -------------------------------------------------------------------------------------

type handle struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func number(word []string, i int, otherwise int64) int64 {
	if i < len(word) {
		if n, err := strconv.ParseInt(word[i], 10, 64); err == nil {
			return n
		}
	}
	return otherwise
}

// A session of its own for each handle: the same lease would be the same owner.
func (h *handle) lock(id string, word []string) error {
	client, found := clients.Load(strings.Split(word[1], ".")[0])
	if !found || word[2] != "mutex" {
		return errors.New("no such client or kind")
	}
	seconds := (number(word, 4, 10000) + 999) / 1000
	session, err := concurrency.NewSession(client.(*clientv3.Client),
		concurrency.WithTTL(int(seconds)))
	if err != nil {
		return err
	}
	h.session, h.mutex = session, concurrency.NewMutex(session, word[3])
	go func() {
		<-session.Done()
		say(id, "event", "lost")
	}()
	return nil
}

func (h *handle) acquire(wait int64) (string, error) {
	ctx, cancel := context.Background(), func() {}
	if wait > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(wait)*time.Millisecond)
	}
	defer cancel()
	var err error
	if wait == 0 {
		err = h.mutex.TryLock(ctx)
	} else {
		err = h.mutex.Lock(ctx)
	}
	if errors.Is(err, concurrency.ErrLocked) || ctx.Err() != nil {
		return "", errBusy
	}
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(h.mutex.Header().Revision, 10), nil
}

func (h *handle) serve(word []string) (string, error) {
	if word[0] == "lock" {
		return "", h.lock(word[1], word)
	}
	if h.mutex == nil {
		return "", errors.New("no such handle")
	}
	switch word[0] {
	case "try":
		return h.acquire(0)
	case "acquire", "grab":
		return h.acquire(number(word, 2, -1))
	case "release":
		return "", h.mutex.Unlock(context.Background())
	case "token":
		return strconv.FormatInt(h.mutex.Header().Revision, 10), nil
	case "owner":
		return h.mutex.Key(), nil
	case "close":
		return "", h.session.Close()
	}
	return "", errors.New("this kind does not know " + word[0])
}

func work(commands chan []string) {
	var h handle
	for word := range commands {
		words, err := h.serve(word)
		answer(word[1], words, err)
	}
}

// ---- All of them --------------------------------------------------------------------------------

func connect(endpoints string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: strings.Split(endpoints, ","),
		DialTimeout: 10 * time.Second})
}

func open(word []string) {
	client, err := connect(word[2])
	if err == nil {
		clients.Store(word[1], client)
	}
	answer(word[1], "", err)
}

func main() {
	if len(os.Args) > 1 {
		bench(os.Args[1:])
		return
	}
	workers := map[string]chan []string{}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		word := strings.Fields(in.Text())
		switch {
		case word[0] == "die":
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case word[0] == "open":
			open(word)
		default:
			if workers[word[1]] == nil {
				workers[word[1]] = make(chan []string, 64)
				go work(workers[word[1]])
			}
			workers[word[1]] <- word
		}
	}
}

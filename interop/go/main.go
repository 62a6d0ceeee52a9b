// SPDX-License-Identifier: Apache-2.0

// Redsync behind one line in, one line out (interop/README.md has the protocol). Every ID has a
// goroutine that carries out its commands in order, so a wait blocks only its own ID.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var errBusy = errors.New("busy")

var (
	output  sync.Mutex
	clients sync.Map // client -> *redsync.Redsync
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
	mutex *redsync.Mutex
}

func number(word []string, i int, otherwise int64) int64 {
	if i < len(word) {
		if n, err := strconv.ParseInt(word[i], 10, 64); err == nil {
			return n
		}
	}
	return otherwise
}

func (h *handle) lock(word []string) error {
	client, found := clients.Load(strings.Split(word[1], ".")[0])
	if !found || word[2] != "mutex" {
		return errors.New("no such client or kind")
	}
	lease := time.Duration(number(word, 4, 8000)) * time.Millisecond
	// An operation may take half the lease, not a twentieth: leases are short in tests.
	h.mutex = client.(*redsync.Redsync).NewMutex(word[3], redsync.WithExpiry(lease),
		redsync.WithTries(math.MaxInt32), redsync.WithTimeoutFactor(0.5))
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
		err = h.mutex.TryLock()
	} else {
		err = h.mutex.LockContext(ctx)
	}
	var taken *redsync.ErrTaken
	if errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken) || ctx.Err() != nil {
		return "", errBusy
	}
	return h.mutex.Value(), err
}

func done(ok bool, err error) (string, error) {
	if err == nil && !ok {
		err = errors.New("refused")
	}
	return "", err
}

func (h *handle) serve(word []string) (string, error) {
	if word[0] == "lock" {
		return "", h.lock(word)
	}
	if h.mutex == nil {
		return "", errors.New("no such handle")
	}
	switch word[0] {
	case "try":
		return h.acquire(0)
	case "acquire":
		return h.acquire(number(word, 2, -1))
	case "release":
		return done(h.mutex.Unlock())
	case "extend":
		return done(h.mutex.Extend())
	case "held":
		if time.Now().Before(h.mutex.Until()) {
			return "1", nil
		}
		return "0", nil
	case "token":
		return h.mutex.Value(), nil
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

func open(word []string) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + word[2]})
	err := client.Ping(context.Background()).Err()
	clients.Store(word[1], redsync.New(goredis.NewPool(client)))
	answer(word[1], "", err)
}

func main() {
	if len(os.Args) > 3 && os.Args[1] == "bench" {
		bench(os.Args[2:])
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
		case word[0] == "close":
			answer(word[1], "", nil)
		default:
			if workers[word[1]] == nil {
				workers[word[1]] = make(chan []string, 64)
				go work(workers[word[1]])
			}
			workers[word[1]] <- word
		}
	}
}

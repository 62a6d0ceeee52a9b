// SPDX-License-Identifier: Apache-2.0

// Package lines is the side of a driver that is the same for every peer in Go: one line in, one line
// out (interop/README.md has the protocol). Every ID has a goroutine that carries out its commands
// in order, so a wait blocks only its own ID.
package lines

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// Busy is the error of who did not get the lock, for no fault of anybody's.
var Busy = errors.New("busy")

var output sync.Mutex

// The clock that all drivers share; Go's own monotonic time starts with the process.
func micros() int64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0)
	return t.Sec*1e6 + t.Nsec/1e3
}

// Say prints a line about an ID.
func Say(id, status, words string) {
	output.Lock()
	defer output.Unlock()
	line := fmt.Sprintf("%s %s %d %s", id, status, micros(), words)
	fmt.Println(strings.TrimSpace(strings.ReplaceAll(line, "\n", " ")))
}

func answer(id, words string, err error) {
	switch {
	case errors.Is(err, Busy):
		Say(id, "busy", "")
	case err != nil:
		Say(id, "error", err.Error())
	default:
		Say(id, "ok", words)
	}
}

// Number is the i-th word as one, if there is such a word and it is one.
func Number(word []string, i int, otherwise int64) int64 {
	if i < len(word) {
		if n, err := strconv.ParseInt(word[i], 10, 64); err == nil {
			return n
		}
	}
	return otherwise
}

// Handle is what an ID stands for; Serve carries out one command.
type Handle interface {
	Serve(word []string) (string, error)
}

func work(h Handle, commands chan []string) {
	for word := range commands {
		words, err := h.Serve(word)
		answer(word[1], words, err)
	}
}

// Serve reads commands until there are no more.
func Serve(open func(word []string) error, handle func() Handle) {
	workers := map[string]chan []string{}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		word := strings.Fields(in.Text())
		switch {
		case word[0] == "die":
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case word[0] == "open":
			answer(word[1], "", open(word))
		default:
			if workers[word[1]] == nil {
				workers[word[1]] = make(chan []string, 64)
				go work(handle(), workers[word[1]])
			}
			workers[word[1]] <- word
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// Redsync behind one line in, one line out (../lines).
package main

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"pawl/interop/lines"
)

var clients sync.Map // client -> *redsync.Redsync

// ---- One ID -------------------------------------------------------------------------------------

type handle struct {
	mutex *redsync.Mutex
}

func (h *handle) lock(word []string) error {
	client, found := clients.Load(strings.Split(word[1], ".")[0])
	if !found || word[2] != "mutex" {
		return errors.New("no such client or kind")
	}
	lease := time.Duration(lines.Number(word, 4, 8000)) * time.Millisecond
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
		return "", lines.Busy
	}
	return h.mutex.Value(), err
}

func done(ok bool, err error) (string, error) {
	if err == nil && !ok {
		err = errors.New("refused")
	}
	return "", err
}

func (h *handle) Serve(word []string) (string, error) {
	if word[0] == "lock" {
		return "", h.lock(word)
	}
	if word[0] == "close" {
		return "", nil
	}
	if h.mutex == nil {
		return "", errors.New("no such handle")
	}
	switch word[0] {
	case "try":
		return h.acquire(0)
	case "acquire":
		return h.acquire(lines.Number(word, 2, -1))
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

// ---- All of them --------------------------------------------------------------------------------

func open(word []string) error {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + word[2]})
	clients.Store(word[1], redsync.New(goredis.NewPool(client)))
	return client.Ping(context.Background()).Err()
}

func main() {
	if len(os.Args) > 3 && os.Args[1] == "bench" {
		bench(os.Args[2:])
		return
	}
	lines.Serve(open, func() lines.Handle { return &handle{} })
}

// SPDX-License-Identifier: Apache-2.0

// etcd's own concurrency.Mutex behind one line in, one line out (../lines). With arguments it
// measures itself instead (bench.go).
package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"pawl/interop/lines"
)

var clients sync.Map // client -> *clientv3.Client

// ---- One ID -------------------------------------------------------------------------------------

type handle struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

// A session of its own for each handle: the same lease would be the same owner.
func (h *handle) lock(id string, word []string) error {
	client, found := clients.Load(strings.Split(word[1], ".")[0])
	if !found || word[2] != "mutex" {
		return errors.New("no such client or kind")
	}
	seconds := (lines.Number(word, 4, 10000) + 999) / 1000
	session, err := concurrency.NewSession(client.(*clientv3.Client),
		concurrency.WithTTL(int(seconds)))
	if err != nil {
		return err
	}
	h.session, h.mutex = session, concurrency.NewMutex(session, word[3])
	go func() {
		<-session.Done()
		lines.Say(id, "event", "lost")
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
		return "", lines.Busy
	}
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(h.mutex.Header().Revision, 10), nil
}

func (h *handle) Serve(word []string) (string, error) {
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
		return h.acquire(lines.Number(word, 2, -1))
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

// ---- All of them --------------------------------------------------------------------------------

func connect(endpoints string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: strings.Split(endpoints, ","),
		DialTimeout: 10 * time.Second})
}

func open(word []string) error {
	client, err := connect(word[2])
	if err == nil {
		clients.Store(word[1], client)
	}
	return err
}

func main() {
	if len(os.Args) > 1 {
		bench(os.Args[1:])
		return
	}
	lines.Serve(open, func() lines.Handle { return &handle{} })
}

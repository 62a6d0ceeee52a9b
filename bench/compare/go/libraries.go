// SPDX-License-Identifier: Apache-2.0

// Each library is used as in its own documentation, with a lease of 30 s. A library that has to
// poll for a taken lock polls every 5 ms, much faster than by default (100 ms to 500 ms): the
// default would make the comparison meaningless.
package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	lease = 30 * time.Second
	retry = 5 * time.Millisecond
)

var background = context.Background()

func openRedsync(address string) client {
	c := redis.NewClient(&redis.Options{Addr: address})
	sync := redsync.New(goredis.NewPool(c))
	return client{func(name string) lock {
		m := sync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1000000),
			redsync.WithRetryDelay(retry))
		return lock{m.Lock, func() error { _, err := m.Unlock(); return err }}
	}, func() { c.Close() }}
}

func openRedislock(address string) client {
	c := redis.NewClient(&redis.Options{Addr: address})
	locker := redislock.New(c)
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(retry)}
	return client{func(name string) lock {
		var held *redislock.Lock
		return lock{func() (err error) {
			// Without a deadline the library gives up when the lease of one holder has ended.
			patience, cancel := context.WithTimeout(background, time.Hour)
			defer cancel()
			held, err = locker.Obtain(patience, name, lease, options)
			return
		}, func() error { return held.Release(background) }}
	}, func() { c.Close() }}
}

func openRueidis(address string) client {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{address}},
		KeyMajority:  1, KeyValidity: lease,
	})
	must(err)
	return client{func(name string) lock {
		var cancel context.CancelFunc
		return lock{func() (err error) {
			_, cancel, err = locker.WithContext(background, name)
			return
		}, func() error { cancel(); return nil }}
	}, locker.Close}
}

func openEtcd(address string) client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}})
	must(err)
	session, err := concurrency.NewSession(c, concurrency.WithTTL(30))
	must(err)
	return client{func(name string) lock {
		m := concurrency.NewMutex(session, "/bench-go/"+name)
		return lock{func() error { return m.Lock(background) },
			func() error { return m.Unlock(background) }}
	}, func() { session.Close(); c.Close() }}
}

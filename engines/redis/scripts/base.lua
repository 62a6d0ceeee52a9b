-- SPDX-License-Identifier: Apache-2.0
--
-- Tokens, records and times, needed by everything that grants or queues. Comes behind head.lua.
--
-- The counter is the last token given out. It never stays behind the server's time in microseconds:
-- so tokens rise also across a FLUSHALL, a restart from an old snapshot and a fail-over to a replica
-- that lags. All stay below 2^53, where Lua's numbers are exact.

local format = string.format
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The first of n new tokens, all of them above `floor`.
local function reserve(n, floor)
    local last = call('INCRBY', FENCE, n)
    local least = math.max(time[1] * 1e6 + time[2], (floor or 0) + n)
    if last < least then
        last = least
        call('SET', FENCE, format('%.0f', least))
    end
    if last >= 9007199254740992 then
        error('the token counter is full')
    end
    return last - n + 1
end

-- What K says of an exclusive holder: `letter` x holds, z has released and lingers.
local function exclusive(letter, owner, token, ntokens, since, chan)
    return format('pawl %s %s %.0f %d %.0f %s', letter, owner, token, ntokens, since, chan)
end

-- A record: mode, permits, capacity, tokens, since, lease, limit, channel. `limit` is a waiter's
-- deadline, a holder's first token.
local function record_of(mode, permits, capacity, ntokens, since, lease, limit, chan)
    return format('%s %d %.0f %d %.0f %.0f %.0f %s', mode, permits, capacity, ntokens, since,
                  lease, limit, chan)
end

-- WATCH. One waiter watches the end of the holder's lease: REC's field `watch` says which, and when
-- it will look. It need not be the front, and keeps the task as long as it stands in the queue,
-- looks no later than the lease ends and is not due: so that a hand-over need not wake two. Whoever
-- takes it out of the queue appoints another: so a watcher stands in the queue, and without one the
-- queue is empty.
local function watching(owner, ms)
    return format('%.0f %s', now + math.max(ms, 0), owner)
end

local function watcher(watch)
    return match(watch or '', ' (%S+)$')
end

-- `ends`: when the lease does, if that may be sooner than it was.
local function is_watched(watch, ends)
    local at = tonumber(match(watch or '', '^(%d+) '))
    return at and at >= now and at <= (ends or at)
end

-- Helper keys outlive what is in them by some seconds, and are then gone without anybody's doing.
local function keep(key, at)
    local ttl = call('PTTL', key)
    if ttl == -1 or (ttl >= 0 and now + ttl < at + 1000) then
        call('PEXPIREAT', key, at + 10000)
    end
end

--#include tell.lua

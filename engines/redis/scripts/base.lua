-- SPDX-License-Identifier: Apache-2.0
--
-- Tokens, records and times, needed by everything that grants or queues. Comes behind head.lua.
--
-- The counter is the last token given out. It never stays behind the server's time in microseconds:
-- so tokens rise also across a FLUSHALL, a restart from an old snapshot and a fail-over to a replica
-- that lags. All stay below 2^53, where Lua's numbers are exact.
--
-- Once the clock has passed the last token, the clock alone gives a larger one, so the counter need
-- not be kept: it expires a day or more (FENCE_MS less 10,000 s, see draw.lua) after the last token
-- was given out, or after the clock has reached that token if the counter ran ahead. A clock that is
-- set back by more than a day afterwards may repeat tokens.

local format = string.format
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- When the counter may go: see above.
local function keep_fence(last)
    call('PEXPIREAT', FENCE, format('%.0f', math.max(now, math.floor(last / 1000)) + FENCE_MS))
end

-- The first of n new tokens, all of them above `floor`.
local function reserve(n, floor)
    local last = call('INCRBY', FENCE, n)
    local least = math.max(time[1] * 1e6 + time[2], (floor or 0) + n)
    if last < least then
        last = least
        call('SET', FENCE, format('%.0f', least))
    end
    keep_fence(last)
    if last >= 9007199254740992 then
        error('the token counter is full')
    end
    return last - n + 1
end

-- A claim of this lease, ms. Whoever renews a lease that is longer than a claim makes it at least
-- 100 ms longer than the claim: so cancel.lua can tell a claim that nobody has renewed.
local function claim_of(lease)
    local claim = tonumber(CLAIM_MS)
    return tonumber(lease) > claim + 100 and claim or math.min(lease, claim - 100)
end

-- What K says of an exclusive holder: `letter` x holds, z has released and lingers.
local function exclusive(letter, owner, token, ntokens, since, chan)
    return format('pawl %s %s %.0f %d %.0f %s', letter, owner, token, ntokens, since, chan)
end

-- A record: mode, permits, capacity, tokens, since, lease, limit, secret, channel. `limit` is a
-- waiter's deadline, a holder's first token. `secret` is the waiter's own, in hex: messages to it
-- repeat it, so that only who may read the record can send one.
local function record_of(mode, permits, capacity, ntokens, since, lease, limit, secret, chan)
    return format('%s %d %.0f %d %.0f %.0f %.0f %s %s', mode, permits, capacity, ntokens, since,
                  lease, limit, secret, chan)
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

-- SPDX-License-Identifier: Apache-2.0
--
-- Tokens, records and times, needed by all scripts that grant or queue. Included after head.lua.
--
-- The counter is the last token given out. Giving out tokens raises the counter at least to the
-- server's time in microseconds, so tokens also rise across a FLUSHALL, a restart from an old
-- snapshot and a fail-over to a replica that lags. Tokens stay below 2^53, where Lua's numbers are
-- exact.
--
-- Once the clock has passed the last token, the clock alone gives a larger token, so the counter
-- need not be kept. The counter expires a day or more (FENCE_MS less 10,000 s, see draw.lua) after
-- the last token was given out, or after the clock has reached that token if the counter ran ahead.
-- If the clock is set back by more than a day afterwards, tokens may repeat.

local format = string.format
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Set the time at which the counter expires: see above.
local function keep_fence(last)
    call('PEXPIREAT', FENCE, format('%.0f', math.max(now, math.floor(last / 1000)) + FENCE_MS))
end

-- Returns the first of n new tokens, which are all above `floor`.
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

-- The length of a claim for this lease, ms. A claim of CLAIM_MS is made only for leases that are
-- more than 100 ms longer, so that cancel.lua can tell renewed claims from claims never renewed.
local function claim_of(lease)
    local claim = tonumber(CLAIM_MS)
    return tonumber(lease) > claim + 100 and claim or math.min(lease, claim - 100)
end

-- The value of K for an exclusive holder: `letter` x holds, z has released and lingers.
local function exclusive(letter, owner, token, ntokens, since, chan)
    return format('pawl %s %s %.0f %d %.0f %s', letter, owner, token, ntokens, since, chan)
end

-- A record: mode, permits, capacity, tokens, since, lease, limit, secret, channel. `limit` is a
-- waiter's deadline, or a holder's first token. `secret` is a waiter's random number, in hex:
-- messages to the waiter repeat the secret, so that only users that may read the record can send.
local function record_of(mode, permits, capacity, ntokens, since, lease, limit, secret, chan)
    return format('%s %d %.0f %d %.0f %.0f %.0f %s %s', mode, permits, capacity, ntokens, since,
                  lease, limit, secret, chan)
end

-- WATCH. One waiter, the watcher, checks at the end of the holder's lease. REC's field `watch`
-- names the watcher and the time of its check. The watcher need not be the front. A waiter stays
-- the watcher while in the queue, if its check is not overdue and not after the end of the lease: a
-- hand-over then need not wake two waiters. A script that removes the watcher from the queue
-- appoints another one. So the watcher is always in the queue, and a queue without a watcher is
-- empty.
local function watching(owner, ms)
    return format('%.0f %s', now + math.max(ms, 0), owner)
end

local function watcher(watch)
    return match(watch or '', ' (%S+)$')
end

-- `ends`: the end of the lease, if the lease may end sooner than before.
local function is_watched(watch, ends)
    local at = tonumber(match(watch or '', '^(%d+) '))
    return at and at >= now and at <= (ends or at)
end

-- Helper keys outlive their content by some seconds, and then expire.
local function keep(key, at)
    local ttl = call('PTTL', key)
    if ttl == -1 or (ttl >= 0 and now + ttl < at + 1000) then
        call('PEXPIREAT', key, at + 10000)
    end
end

--#include tell.lua

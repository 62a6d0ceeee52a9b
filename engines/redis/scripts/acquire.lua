-- SPDX-License-Identifier: Apache-2.0
--
-- acquire: take K, or queue for K.
--
-- KEYS: as in rules.lua. ARGV: 1 owner "client:seq", 2 mode x|s|p|l, 3 lease ms, 4 how long the
-- place in the queue is kept, ms (0: don't queue), 5 tokens, 6 p, c or s and the channel's name,
-- 7 permits, 8 capacity (0: as set), 9 an owner of the same client whose exclusive grant allows
-- this shared one, or "", 10 floor of the tokens (0: none), 11 latch: the round seen when queued,
-- or "", 12 the waiter's secret, in hex.
--
-- Replies: GRANTED owner token ntokens ms now | QUEUED owner behind left foreign now [round]
-- (behind 0: this waiter is the watcher, and is to check after `left` ms; 1: another one is) |
-- BUSY owner left foreign now | STATE owner | INVAL owner.
--#include head.lua

local owner, mode, text = ARGV[1], ARGV[2], redis.pcall('GET', K)

-- The usual cases. TAKE: K is free, nobody waits, and the clock is ahead of the counter.
local plain = match(ARGV[3], '^[1-9]%d*$') and #ARGV[3] < 12
if plain and not text and mode == 'x' and ARGV[5] == '1' and ARGV[10] == '0' and
   call('EXISTS', QUEUE) == 0 then
    --#include draw.lua
    if drawn then
        call('SET', K, 'pawl x ' .. owner .. ' ' .. micros .. ' 1 ' .. millis .. ' ' .. ARGV[6],
             'PX', ARGV[3])
        return {'GRANTED', owner, tonumber(micros), 1, tonumber(ARGV[3]), tonumber(millis)}
    end
end
-- QUEUE, AGAIN: K is held exclusively, and a waiter is the watcher. A place that is kept for long
-- enough is not written again.
if plain and type(text) == 'string' and sub(text, 1, 7) == 'pawl x ' and
   sub(text, 8, 8 + #owner) ~= owner .. ' ' and (mode == 'x' or mode == 's') and
   match(ARGV[4], '^[1-9]%d*$') and #ARGV[4] < 12 and match(ARGV[5], '^[1-9]%d?%d?%d?$') and
   ARGV[9] == '' then
    local known = call('HMGET', REC, 'line', 'watch', owner)
    local kept, last = match(known[1] or '', '^(%d+) (%d+)$')
    local looks, watcher = match(known[2] or '', '^(%d+) (%S+)$')
    local limit = millis + ARGV[4]
    local watched = kept and looks and #looks == #millis and looks >= millis
    if watched and limit + 1000 <= tonumber(kept) and not known[3] then
        last = last + 1
        call('ZADD', QUEUE, 'NX', last, owner)
        call('HSET', REC, owner, mode .. ' 0 0 ' .. ARGV[5] .. ' ' .. millis .. ' ' .. ARGV[3] ..
             ' ' .. limit .. ' ' .. ARGV[12] .. ' ' .. ARGV[6], 'line', kept .. ' ' .. last)
        return {'QUEUED', owner, 1, -1, 0, tonumber(millis)}
    end
    if watched and known[3] and watcher ~= owner then
        local place = match(known[3], '^[xs] 0 0 %d+ %d+ %d+ (%d+) ') or ''
        if #place == #millis and limit - place < ARGV[4] / 4 and call('ZSCORE', QUEUE, owner) then
            return {'QUEUED', owner, 1, -1, 0, tonumber(millis)}
        end
    end
end
--#include allowed.lua
--#include base.lua

local ntokens, chan, floor, secret = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[10]), ARGV[12]
local lease, wait = math.min(tonumber(ARGV[3]), 1e14), math.min(tonumber(ARGV[4]), 1e14)

if (mode ~= 'l' and lease <= 0) or ntokens < 1 or ntokens > 65536 then
    return {'INVAL', owner}
end
if not text and mode == 'x' and call('EXISTS', QUEUE) == 0 then
    local token = reserve(ntokens, floor)
    call('SET', K, exclusive('x', owner, token, ntokens, now, chan), 'PXAT', now + lease)
    return {'GRANTED', owner, token, ntokens, lease, now}
end

-- QUEUE: append the owner to the queue, if not queued yet, and write the owner's record. REC's
-- field `line` has the time until which QUEUE and REC are kept at least, and the number of the last
-- place.
local function stand(line, record)
    local kept, last = match(line or '', '^(%d+) (%d+)$')
    if not kept then
        kept, last = 0, call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')[2] or 0
    end
    kept = format('%.0f', math.max(kept, now + wait + 10000))
    call('ZADD', QUEUE, 'NX', last + 1, owner)
    call('PEXPIREAT', QUEUE, kept)
    call('HSET', REC, owner, record, 'line', format('%s %.0f', kept, last + 1))
    if call('PTTL', REC) < kept - now then
        call('PEXPIREAT', REC, kept)
    end
end

-- Behind an exclusive holder no waiter can be admitted, so the queue need not be read.
if wait > 0 and (mode == 'x' or mode == 's') and ARGV[9] == '' and type(text) == 'string' and
   sub(text, 1, 7) == 'pawl x ' and sub(text, 8, 8 + #owner) ~= owner .. ' ' then
    local known = call('HMGET', REC, 'line', 'watch', owner)
    if not known[3] then
        local watched = is_watched(known[2])
        stand(known[1], record_of(mode, 0, 0, ntokens, now, lease, now + wait, secret, chan))
        if watched then
            return {'QUEUED', owner, 1, -1, 0, now}
        end
        local ms = call('PTTL', K)
        call('HSET', REC, 'watch', watching(owner, ms))
        return {'QUEUED', owner, 0, ms, 0, now}
    end
end
--#include rules.lua

local permits, capacity, with = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local before = front()

local function raise()
    if floor > 0 and (tonumber(call('GET', FENCE)) or 0) < floor then
        call('SET', FENCE, format('%.0f', floor))
        keep_fence(floor)
    end
end

local function granted(token, n, ms)
    return {'GRANTED', owner, token, n, ms, now}
end

-- Remove waiters with expired places behind this one, up to 200: each live waiter removes the dead
-- waiters behind itself, and admit() removes the dead waiters at the front.
local function sweep()
    local place = call('ZSCORE', QUEUE, owner)
    for _ = 1, place and 100 or 0 do
        local behind = call('ZRANGEBYSCORE', QUEUE, '(' .. place, '+inf', 'LIMIT', 0, 2)
        for i = 1, 2 do
            local r = behind[i] and read(behind[i])
            if not behind[i] or (r and r.limit > now) then
                return
            end
            drop_waiter(behind[i])
        end
    end
end

-- QUEUE, or AGAIN: the place is kept for longer.
local function queue(round)
    local known = call('HMGET', REC, 'line', 'watch')
    local r = call('ZSCORE', QUEUE, owner) and read(owner)
    stand(known[1], record_of(mode, permits, capacity, ntokens, r and r.since or now, lease,
                              now + wait, secret, chan))
    sweep()
    local behind, ms = 1, left(mode)
    if mode ~= 'l' then -- WATCH
        local watched = is_watched(known[2]) and call('ZSCORE', QUEUE, watcher(known[2]))
        if front() == owner or not watched or watcher(known[2]) == owner then
            call('HSET', REC, 'watch', watching(owner, ms))
            behind = 0
        end
    end
    return {'QUEUED', owner, behind, ms, foreign(), now, round}
end

-- ---- latch --------------------------------------------------------------------------------------

local function await_latch()
    local round = kind == 'l' and match(value, '^pawl l %d+ (.*)$')
    local seen = ARGV[11]
    if kind == nil or (seen ~= '' and seen ~= round) then
        drop_waiter(owner)
        return granted(0, 0, 0)
    elseif kind ~= 'l' then
        return {'STATE', owner}
    elseif wait > 0 or call('ZSCORE', QUEUE, owner) then
        return queue(round)
    end
    return {'BUSY', owner, -1, 0, now}
end

-- ---- locks and semaphores -----------------------------------------------------------------------

-- AGAIN: the owner holds K already. The lease starts anew, and never ends sooner than before. K is
-- always written: with replicas= the client asks again for a grant by message, and the WAIT of that
-- request must cover the grant.
local function again(r)
    local token, n
    call('PEXPIREAT', K, now + math.max(call('PTTL', K), lease))
    if r then
        token, n = r.limit, r.ntokens
        if tonumber(call('ZSCORE', HOLD, owner)) < now + lease then
            call('ZADD', HOLD, now + lease, owner)
            sync()
        end
    else
        token, n = match(value, '^pawl x %S+ (%d+) (%d+) ')
        token, n = tonumber(token), tonumber(n)
    end
    raise()
    return granted(token, n, lease)
end

-- A downgrade: another owner of this client (ARGV 9) holds K exclusively, and this owner wants a
-- shared grant, too. Both grants are in HOLD from now on.
local function downgrades()
    if with == '' or mode ~= 's' or match(with, '^[^:]*') ~= match(owner, '^[^:]*') then
        return false
    end
    local mine, r = held(with)
    if not mine or (r and r.mode ~= 'x') then
        return false
    end
    if kind == 'x' then
        local token, n, since, its_chan = match(value, '^pawl x %S+ (%d+) (%d+) (%d+) (.*)$')
        local ends = now + call('PTTL', K)
        clear_hold()
        kind, value = 'm', 'pawl m'
        call('SET', K, value, 'PXAT', ends)
        call('ZADD', HOLD, ends, with)
        record(with, {mode = 'x', permits = 0, capacity = 0, ntokens = n, since = since,
                      lease = lease, limit = token, secret = '0', chan = its_chan})
        call('HSET', REC, 'x', with)
    end
    return true
end

-- Whether the name is unused, or in use for the requested mode. Sets the capacity in force.
local function of_type()
    local w = front()
    local r = w and read(w)
    local used_as = kind or (r and r.mode)
    if kind == 'p' then
        used_as, r = 'p', {capacity = tonumber(match(value, '^pawl p (%d+)'))}
    end
    if used_as == '?' or used_as == 'l' or (used_as and (used_as == 'p') ~= (mode == 'p')) then
        return false
    end
    if mode == 'p' then
        local in_force = used_as and r and r.capacity or capacity
        if in_force <= 0 or (capacity > 0 and capacity ~= in_force) then
            return false
        end
        capacity = in_force
    end
    return true
end

look()
settle()
if mode == 'l' then
    conclude(before, owner)
    return await_latch()
end
local mine, r = held(owner)
if mine then
    conclude(before)
    return again(r)
end
local place = call('ZSCORE', QUEUE, owner) and read(owner)
local token = before and conclude(before, owner)
if token then
    raise()
    return granted(token, place.ntokens, place.lease)
end
if place then
    permits, capacity, ntokens, lease, mode =
        place.permits, place.capacity, place.ntokens, place.lease, place.mode
    return queue()
end
if not of_type() then
    return {'STATE', owner}
end
if mode == 'p' and (permits < 1 or permits > capacity) then
    return {'INVAL', owner}
end
local want = {mode = mode, permits = permits, capacity = capacity, ntokens = ntokens, since = now,
              lease = lease, limit = 0, secret = secret, chan = chan}
if downgrades() or (not front() and fits(want)) then
    raise()
    return granted(enter(owner, want, lease), ntokens, lease)
elseif wait > 0 then
    return queue()
end
return {'BUSY', owner, left(mode), foreign(), now}

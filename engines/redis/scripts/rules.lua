-- SPDX-License-Identifier: Apache-2.0
--
-- The rules of locks: which waiter gets the lock, and which waiter gets a message. Included by the
-- scripts that can pass a lock on.
--
-- KEYS: 1 K, 2 {K}:fence, 3 {K}:queue, 4 {K}:rec, 5 {K}:hold; docs/redis.md describes the content.
-- Capital words name the transitions of proof/models/handover.pml.
--
-- K decides: the lock is held while K exists, and free without K, regardless of the other keys.
-- `kind` is the type of K's value: nil free, x exclusive, z lingering, m holders are in HOLD,
-- p a semaphore with holders in HOLD, l latch, f a stranger's (foreign) lock, ? not a string.
--
-- A full server refuses the first write of a script if that write could take memory, and allows all
-- later writes. Scripts that pass a lock on therefore write a ZREM, PEXPIREAT or DEL first.

local kind, value, full

local function look()
    value = redis.pcall('GET', K)
    local text = value
    --#include allowed.lua
    if type(value) == 'table' then
        kind = '?'
    elseif not value then
        kind = nil
    else
        kind = match(value, '^pawl ([xz]) %S+ %d+ %d+ %d+ .') or match(value, '^pawl (m)$') or
               match(value, '^pawl ([pl]) %d+') or 'f'
    end
end

local function parse(text)
    local mode, permits, capacity, ntokens, since, lease, limit, secret, chan =
        match(text or '', '^(%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%x+) (.*)$')
    return mode and {mode = mode, permits = tonumber(permits), capacity = tonumber(capacity),
                     ntokens = tonumber(ntokens), since = tonumber(since),
                     lease = tonumber(lease), limit = tonumber(limit), secret = secret,
                     chan = chan}
end

local function record(owner, r)
    call('HSET', REC, owner, record_of(r.mode, r.permits, r.capacity, r.ntokens, r.since, r.lease,
                                       r.limit, r.secret, r.chan))
end

local function read(owner)
    return parse(call('HGET', REC, owner))
end

-- ---- holders ------------------------------------------------------------------------------------

-- K lasts as long as the longest of the leases in HOLD.
local function sync()
    local top = call('ZREVRANGE', HOLD, 0, 0, 'WITHSCORES')
    if top[1] then
        call('PEXPIREAT', K, top[2])
        keep(HOLD, tonumber(top[2]))
        keep(REC, tonumber(top[2]))
    else
        call('DEL', K)
        call('HDEL', REC, 'used', 'x')
        kind = nil
    end
end

local function drop_holder(member)
    local r = read(member)
    call('ZREM', HOLD, member)
    call('HDEL', REC, member)
    if r and r.mode == 'p' then
        call('HINCRBY', REC, 'used', -r.permits)
    elseif r and r.mode == 'x' then
        call('HDEL', REC, 'x')
    end
end

-- EXPIRE: remove the holders with ended leases from HOLD.
local function settle()
    if kind == 'm' or kind == 'p' then
        local ended = call('ZRANGEBYSCORE', HOLD, '-inf', now)
        for _, member in ipairs(ended) do
            drop_holder(member)
        end
        if ended[1] or call('EXISTS', HOLD) == 0 then
            sync()
        end
    end
end

-- Remove the holders that are left in HOLD after K was deleted.
local function clear_hold()
    for _, member in ipairs(call('ZRANGE', HOLD, 0, -1)) do
        if not call('ZSCORE', QUEUE, member) then
            call('HDEL', REC, member)
        end
    end
    call('DEL', HOLD)
    call('HDEL', REC, 'used', 'x')
end

local function fits(r)
    if kind == nil then
        return true
    elseif r.mode == 's' then
        return kind == 'm' and call('HEXISTS', REC, 'x') == 0
    elseif r.mode == 'p' and kind == 'p' then
        return (tonumber(call('HGET', REC, 'used')) or 0) + r.permits <=
               tonumber(match(value, '^pawl p (%d+)'))
    end
    return false
end

-- Make `owner` a holder for ms. Returns the first token.
local function enter(owner, r, ms)
    local token, ends = reserve(r.ntokens), now + ms
    if r.mode == 'x' then
        value = exclusive('x', owner, token, r.ntokens, now, r.chan)
        call('SET', K, value, 'PXAT', ends)
        kind = 'x'
        return token
    end
    if kind == nil then
        clear_hold()
        kind = r.mode == 's' and 'm' or 'p'
        value = kind == 'm' and 'pawl m' or format('pawl p %.0f', r.capacity)
        call('SET', K, value, 'PXAT', ends)
    end
    call('ZADD', HOLD, ends, owner)
    r.since, r.limit = now, token
    record(owner, r)
    if r.mode == 'p' then
        call('HINCRBY', REC, 'used', r.permits)
    end
    sync()
    return token
end

local function leave(owner, r)
    if r.mode == 'x' and kind == 'x' then
        call('DEL', K)
        kind = nil
    else
        drop_holder(owner)
        sync()
    end
end

-- Whether `owner` is a holder; and the owner's record, if the owner is in HOLD. Call settle first.
local function held(owner)
    if kind == 'x' then
        local mine = 'pawl x ' .. owner .. ' '
        return sub(value, 1, #mine) == mine
    elseif kind == 'm' or kind == 'p' then
        local r = call('ZSCORE', HOLD, owner) and read(owner)
        return r and true or false, r
    end
    return false
end

-- In how many ms the watcher should check again; -1 if not known.
local function left(mode)
    if kind == nil then
        return 0
    end
    if (kind == 'm' or kind == 'p') and mode ~= 'x' then
        local first = call('ZRANGE', HOLD, 0, 0, 'WITHSCORES')
        return first[2] and math.max(first[2] - now, 0) or 0
    end
    return math.max(call('PTTL', K), -1)
end

local function foreign()
    return kind == 'f' and 1 or 0
end

-- ---- waiters ------------------------------------------------------------------------------------

local function front()
    return call('ZRANGE', QUEUE, 0, 0)[1]
end

local function drop_waiter(owner)
    call('ZREM', QUEUE, owner)
    call('HDEL', REC, owner)
end

-- PASS to the waiter at the front: make a claim, and send the tokens in a message. False: the
-- waiter is gone. If the server is too full even for the claim, the lock stays free, and the
-- message tells the waiter to check.
local function grant(w, r)
    local ms = claim_of(r.lease)
    local was = kind
    drop_waiter(w)
    local ok, token = pcall(enter, w, r, ms)
    if not ok then
        if was == nil then
            call('DEL', K, HOLD)
            kind = nil
        else
            call('ZREM', HOLD, w)
        end
        full = true
        tell(r.chan, format('f %s 0 0 %.0f %s %s', w, now, r.secret, K))
        return false
    end
    if tell(r.chan, format('g %s %.0f %d %d %.0f %s %s', w, token, r.ntokens, ms, now, r.secret,
                           K)) then
        return true
    end
    leave(w, r)
    return false
end

-- PASS to the front waiter as long as the waiter fits. If the asker's turn comes, the reply of the
-- script is the grant: the asker's token is returned.
local function admit(asker)
    local mine
    local w = not full and front()
    while w do
        local r = read(w)
        if not r or (w ~= asker and r.limit <= now) then
            drop_waiter(w)
        elseif r.mode == 'l' then
            if kind == 'l' then
                return mine
            end
            drop_waiter(w)
            tell(r.chan, format('o %s %.0f %s %s', w, now, r.secret, K))
        elseif not fits(r) then
            return mine
        elseif w == asker then
            drop_waiter(w)
            mine = enter(w, r, r.lease)
        else
            grant(w, r)
        end
        w = not full and front()
    end
    return mine
end

-- PASS the lock on as far as possible, then WATCH: tell the front waiter to watch, unless the same
-- waiter was at the front `before` and need not check sooner. The asker is told by the reply.
local function conclude(before, asker, sooner)
    local mine = admit(asker)
    local w = not full and front()
    while w and w ~= asker and (w ~= before or sooner) do
        local r = read(w)
        if r and r.mode == 'l' then
            break
        end
        local ms = left(r and r.mode)
        if r and r.limit > now and
           tell(r.chan, format('f %s %.0f %d %.0f %s %s', w, ms, foreign(), now, r.secret, K)) then
            call('HSET', REC, 'watch', watching(w, ms))
            break
        end
        drop_waiter(w)
        mine = admit(asker) or mine
        w = not full and front()
    end
    if not w then
        call('HDEL', REC, 'watch', 'line')
    end
    return mine
end

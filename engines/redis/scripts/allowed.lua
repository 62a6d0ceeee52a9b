-- SPDX-License-Identifier: Apache-2.0
--
-- GET of K is protected, since K may be a stranger's key of another type. `text` is what GET said.
-- If GET failed for any other reason (the user has no right to use GET), the script fails as well,
-- with the line of the GET: else K would look taken. Wants the local call.
if type(text) == 'table' and not string.find(text.err, 'WRONGTYPE', 1, true) then
    call('GET', K)
end

# SPDX-License-Identifier: Apache-2.0
"""Names that an unknown program may have given to locks: Redis accepts any bytes as a key."""

CHINESE = '库存锁定测试'
HOSTILE = [
    b'<script>document.title="owned"</script>',
    b'<img src=x onerror=document.title="owned">',
    b'"\'`&lt;&amp;${document.title="owned"}</title></textarea>',
    b'javascript:document.title="owned"',
    b'two\nlines\r\nand\ttabs',
    b'\x1b]0;owned\x07\x1b[31mred\x1b[2J',
    b'not utf-8: \xff\xfe\xc3',
    'right \u202eto left\u2066 \u200f'.encode(),
    (CHINESE * 20).encode()[:255],
    b'../../etc/passwd?name=x&y#z%00 +',
]


# Pawl lists no names with control characters, because such names are not valid in Pawl.
LISTED = [name for name in HOSTILE if all(byte >= 0x20 for byte in name)]
LABEL = '<b onmouseover=x>"\'&\x1b[31m\n\u202e\\'


def plant(server, names=HOSTILE, lease_ms=600000):
    """Create locks in the layout of the real Redisson: a hash with an owner, which expires."""
    for name in names:
        server.call('HSET', name, 'b0d0ccb6-3b7e-4b3c-9d5c-1f1f1f1f1f1f:1', '1')
        server.call('PEXPIRE', name, lease_ms)

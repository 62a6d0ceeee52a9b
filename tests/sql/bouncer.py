# SPDX-License-Identifier: Apache-2.0
"""PgBouncer in front of a private PostgreSQL server, stopped by its process id."""
import os
import shutil
import subprocess

from ports import free_port
from wait import until


class Bouncer:
    def __init__(self, server, mode, user='root'):
        self.server, self.port = server, free_port()
        self.ini = os.path.join(server.folder, 'bouncer.ini')
        with open(self.ini, 'w', encoding='ascii') as f:
            f.write('[databases]\n'
                    f'postgres = host=127.0.0.1 port={server.port} dbname=postgres user={user}\n'
                    '[pgbouncer]\n'
                    f'listen_addr = 127.0.0.1\nlisten_port = {self.port}\n'
                    'unix_socket_dir =\nauth_type = any\n'
                    f'pool_mode = {mode}\nignore_startup_parameters = extra_float_digits\n')
        program = shutil.which('pgbouncer') or '/usr/sbin/pgbouncer'
        with open(server.log, 'ab') as log:
            self.process = subprocess.Popen(server.as_postgres(program, self.ini), stdout=log,
                                            stderr=log)
        try:
            until(self._answers, 'for the pooler')
        except BaseException:
            self.stop()
            raise

    def _answers(self):
        return subprocess.run(['psql', '-XqAt', '-h', '127.0.0.1', '-p', str(self.port), '-U',
                               'root', 'postgres', '-c', 'SELECT 1'], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False).returncode == 0

    def url(self, **params):
        return self.server.url(port=self.port, **params)

    def stop(self):
        self.process.kill()
        self.process.wait()

# SPDX-License-Identifier: Apache-2.0
"""The life of a server that is one process with a folder of its own."""
import os
import shutil
import signal


class ServerProcess:
    """Whoever inherits this sets `process` and `folder`."""

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

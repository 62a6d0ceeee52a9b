# SPDX-License-Identifier: Apache-2.0
"""Servers of given versions, each unpacked into a folder of its own with its programs in bin/.

Nothing is installed on the system, and only the package managers' own clients go to the network:
apt-get with a private configuration, mvn, pip and go. A folder that has a stamp is complete; `get`
leaves such a folder alone. Every way to get a server raises Unavailable with the reason when the
registry does not have the version.

Programs of another Debian suite need that suite's C library: bin/ has scripts that start them with
the suite's own dynamic loader.
"""
import glob
import os
import re
import shutil
import stat
import subprocess
import zipfile

LOADER = 'ld-linux-x86-64.so.2'
LIBRARIES = ('usr/lib/x86_64-linux-gnu', 'lib/x86_64-linux-gnu',
             'usr/lib/x86_64-linux-gnu/libmariadb3', 'usr/lib/mysql/private')
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>pawl</groupId><artifactId>versions</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId>
<version>{}</version></dependency>"""


class Unavailable(Exception):
    """The version can't be had here; the text says why."""


def run(*words, cwd=None, env=None):
    """The output of a command that must succeed."""
    if not shutil.which(words[0]):
        raise Unavailable(f'{words[0]} is not installed')
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, cwd=cwd, check=False,
                          env=dict(os.environ, **(env or {})))
    text = done.stdout.decode(errors='replace')
    if done.returncode:
        lines = [s for s in re.sub(r'\x1b\[[\d;]*m', '', text).splitlines() if s.strip()]
        wrong = [s for s in lines if re.match(r'E: |\[?ERROR\]?:? \w|go: ', s)] or lines[-1:]
        raise Unavailable(f'{words[0]} failed: {(wrong or ["no message"])[0][:300]}')
    return text


def script(path, *lines):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as f:
        f.write('\n'.join(['#!/bin/sh', *lines, '']))
    os.chmod(path, 0o755)


class Apt:
    """Debian's packages of one suite, by an apt with lists, cache and status of its own."""

    def __init__(self, folder, suites):
        self.folder, self.suites = folder, suites
        self.config = os.path.join(folder, 'apt.conf')
        self.target = suites[-1]

    def archive(self):
        """Where this machine's own apt gets Debian from."""
        rows = run('apt-get', 'indextargets', '--format', '$(REPO_URI)|$(ORIGIN)|$(LABEL)',
                   'Created-By: Packages')
        for row in rows.splitlines():
            uri, origin, label = row.split('|')
            if (origin, label) == ('Debian', 'Debian'):
                return uri
        raise Unavailable('apt on this machine has no Debian archive (run apt-get update?)')

    def update(self):
        if os.path.exists(os.path.join(self.folder, 'updated')):
            return
        for sub in ('lists/partial', 'cache/archives/partial'):
            os.makedirs(os.path.join(self.folder, sub), exist_ok=True)
        archive = self.archive()
        with open(os.path.join(self.folder, 'suites.sources'), 'w', encoding='ascii') as f:
            for suite in self.suites:
                f.write(f'Types: deb\nURIs: {archive}\nSuites: {suite}\nComponents: main\n'
                        'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n')
        with open(self.config, 'w', encoding='ascii') as f:
            f.write(f'Dir::Etc::sourcelist "{self.folder}/suites.sources";\n'
                    'Dir::Etc::sourceparts "/dev/null";\n'
                    f'Dir::State "{self.folder}";\n'
                    f'Dir::State::lists "{self.folder}/lists";\n'
                    f'Dir::State::status "{self.folder}/status";\n'
                    f'Dir::Cache "{self.folder}/cache";\n'
                    'APT::Sandbox::User "root";\n'
                    'Acquire::Languages "none";\n'
                    'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\n')
        with open(os.path.join(self.folder, 'status'), 'w', encoding='ascii'):
            pass  # nothing is installed, so each package comes with all that it needs
        self.apt('apt-get', 'update', '-qq')
        with open(os.path.join(self.folder, 'updated'), 'w', encoding='ascii'):
            pass

    def apt(self, *words):
        return run(*words, env={'APT_CONFIG': self.config, 'DEBIAN_FRONTEND': 'noninteractive'})

    def unpack(self, packages, root):
        self.update()
        archives = os.path.join(root, 'archives')
        os.makedirs(os.path.join(archives, 'partial'))
        self.apt('apt-get', 'install', '-y', '-qq', '--download-only', '--no-install-recommends',
                 '-t', self.target, '-o', f'Dir::Cache::archives={archives}', *packages)
        for deb in glob.glob(f'{archives}/*.deb'):
            run('dpkg', '-x', deb, root)
        shutil.rmtree(archives)


def by_loader(folder, program):
    """The words that start a program of root/ with root/'s own loader and libraries."""
    root = os.path.join(folder, 'root')
    libraries = [os.path.join(root, d) for d in LIBRARIES]
    loader = next(d for d in libraries if os.path.exists(os.path.join(d, LOADER)))
    return f'{loader}/{LOADER} --library-path {":".join(libraries)} {root}/{program}'


def debian(suites, packages, programs):
    """Programs of a suite: name in bin/: path. `suites` are what apt sees; the packages come from
    the last one."""
    def get(top, folder):
        apt = Apt(os.path.join(top, 'apt-' + suites[-1]), suites)
        os.makedirs(apt.folder, exist_ok=True)
        apt.unpack(packages, os.path.join(folder, 'root'))
        for name, program in programs.items():
            script(os.path.join(folder, 'bin', name), f'exec {by_loader(folder, program)} "$@"')
    get.source = f'Debian {suites[-1]}: `{packages[0]}`'
    return get


# ---- MariaDB and MySQL: they want to know where they are, and make their first tables by a command

MARIADB_FIRST = '''for word in "$@"; do
    case $word in --datadir=*) data=${{word#*=}} ;; esac
done
mkdir -p "$data/mysql"
{{
    echo 'CREATE DATABASE IF NOT EXISTS mysql;'
    echo 'USE mysql;'
    echo 'SET @auth_root_socket = NULL, @skip_auth_anonymous = 1;'
    cat {share}/m*_system_tables.sql {share}/m*_performance_tables.sql \
        {share}/m*_system_tables_data.sql
}} | {server} --no-defaults --bootstrap --user=root --datadir="$data" {options}'''
# root may come by the loopback, as on MariaDB
MYSQL_FIRST = '''for word in "$@"; do
    case $word in --datadir=*) data=${{word#*=}} ;; esac
done
{server} --no-defaults --initialize-insecure --user=root --datadir="$data" \
    --init-file={folder}/first.sql {options}'''
MYSQL_ROOT = """CREATE USER root@'127.0.0.1';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
"""


def with_tables(way, program, base, share, brand):
    """Programs bin/mariadbd and bin/mariadb-install-db, whatever the brand is: so the tests call
    them. A program below root/ is of another suite."""
    def get(top, folder):
        way(top, folder)
        path = os.path.join(folder, program)
        server = by_loader(folder, program[5:]) if program.startswith('root/') else path
        options = f'--basedir={folder}/{base} --lc-messages-dir={folder}/{share}'
        if program.startswith('root/'):
            options += f' --plugin-dir={folder}/root/usr/lib/{brand.lower()}/plugin'
        if brand == 'MySQL':
            options += ' --loose-mysqlx=OFF --secure-file-priv='
            with open(os.path.join(folder, 'first.sql'), 'w', encoding='ascii') as f:
                f.write(MYSQL_ROOT)
        first = MARIADB_FIRST if brand == 'MariaDB' else MYSQL_FIRST
        words = {'share': f'{folder}/{share}', 'server': server, 'options': options,
                 'folder': folder}
        if program == 'bin/mariadbd':
            words['server'] = server = path + '.real'
            if not os.path.exists(server):
                os.rename(path, server)
        script(os.path.join(folder, 'bin', 'mariadbd'), f'exec {server} "$@" {options}')
        script(os.path.join(folder, 'bin', 'mariadb-install-db'), first.format(**words))
    get.source = way.source
    return get


def maven_jars(coordinates, folder, transitive):
    """The jars of group:artifact:version, with what they need."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'pom.xml'), 'w', encoding='ascii') as f:
        f.write(POM.format(''.join(DEPENDENCY.format(*c.split(':')) for c in coordinates)))
    run('mvn', '-q', '-B', 'dependency:copy-dependencies', '-DoutputDirectory=jars',
        *([] if transitive else ['-DexcludeTransitive=true']), cwd=folder)
    return sorted(glob.glob(os.path.join(folder, 'jars', '*.jar')))


def unpack_inner(jar, folder):
    """A server that a jar has as an archive of its own inside."""
    with zipfile.ZipFile(jar) as z:
        inner = next(n for n in z.namelist() if n.endswith(('.txz', '.tar.gz')) and
                     'arm' not in n.lower() and 'mac' not in n.lower() and 'ppc' not in n.lower())
        path = z.extract(inner, folder)
    run('tar', '-C', folder, '-xf', path)
    os.unlink(path)


def maven(coordinate):
    """A server inside a jar, as an archive with bin/."""
    def get(_, folder):
        jars = maven_jars([coordinate], folder, transitive=False)
        unpack_inner(jars[0], folder)
        shutil.rmtree(os.path.join(folder, 'jars'))
    get.source = f'Maven `{coordinate}`'
    return get


def maven_tree(coordinate):
    """A server inside a jar, as plain files below a folder that has bin/."""
    def get(_, folder):
        jar = maven_jars([coordinate], folder, transitive=False)[0]
        with zipfile.ZipFile(jar) as z:
            names = [n for n in z.namelist() if '/bin/' in n and not n.endswith('/')]
            base = names[0].split('bin/')[0]
            for n in z.namelist():
                if n.startswith(base) and not n.endswith('/'):
                    path = os.path.join(folder, n[len(base):])
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, 'wb') as f:
                        f.write(z.read(n))
        for path in glob.glob(f'{folder}/*bin/*') + glob.glob(f'{folder}/scripts/*'):
            os.chmod(path, 0o755)
        shutil.rmtree(os.path.join(folder, 'jars'))
    get.source = f'Maven `{coordinate}`'
    return get


def zookeeper(*coordinates):
    """Jars in jars/, which the tests find by PAWL_ZK_JARS."""
    def get(_, folder):
        maven_jars(coordinates, folder, transitive=True)
        for clash in glob.glob(f'{folder}/jars/slf4j-*log4j*') + glob.glob(f'{folder}/jars/logback*'):
            os.unlink(clash)  # slf4j-nop is the logger
    get.source, get.made_of = f'Maven `{coordinates[0]}`', coordinates
    return get


def pypi(requirement, program, names):
    """A program inside a wheel."""
    def get(_, folder):
        wheel = os.path.join(folder, 'wheel')
        run('python3', '-m', 'pip', 'download', '-q', '--no-deps', '--only-binary=:all:',
            '--python-version', '3.11', '--platform', 'manylinux2014_x86_64', '--platform',
            'manylinux_2_28_x86_64', '-d', wheel, requirement)
        with zipfile.ZipFile(glob.glob(f'{wheel}/*.whl')[0]) as z:
            z.extractall(os.path.join(folder, 'root'))
        shutil.rmtree(wheel)
        path = os.path.join(folder, 'root', program)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        os.makedirs(os.path.join(folder, 'bin'))
        for name in names:
            os.symlink(path, os.path.join(folder, 'bin', name))
    get.source = f'PyPI `{requirement}`'
    return get


def go(version, packages):
    """Programs that are built from Go modules: name: module path."""
    def get(_, folder):
        env = {'GOFLAGS': '-mod=mod', 'CGO_ENABLED': '0'}
        run('go', 'mod', 'init', 'versions', cwd=folder)
        for module in packages.values():
            run('go', 'get', f'{module}@{version}', cwd=folder, env=env)
        for name, module in packages.items():
            run('nice', 'go', 'build', '-p', '1', '-o', f'bin/{name}', module, cwd=folder, env=env)
    get.source = f'Go `{next(iter(packages.values()))}@{version}`'
    return get


def get(way, top, name):
    """The folder of a server, which is fetched if it is not there yet."""
    folder = os.path.join(top, name)
    stamp = os.path.join(folder, 'stamp')
    made_of = ' '.join(getattr(way, 'made_of', [way.source]))
    if os.path.exists(stamp):
        with open(stamp, encoding='utf-8') as f:
            if f.read() == made_of:
                return folder
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    way(top, folder)
    with open(stamp, 'w', encoding='utf-8') as f:
        f.write(made_of)
    return folder

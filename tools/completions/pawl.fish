# fish completion for pawl: commands, options, and the names of locks.
# SPDX-License-Identifier: Apache-2.0
#
# Commands and options come from `pawl help`, names from `pawl ls` on the service that the line names.

function __pawl_commands
    $argv[1] help 2>/dev/null | awk '/^$/ { block++ } block == 1 && /^  [a-z]/ { name = $1; sub(/^ +[a-z]+ +/, ""); print name "\t" $0 }'
end

# Option, value ("-": none) and description of each, with tabs between them.
function __pawl_options
    $argv[1] help $argv[2..] 2>/dev/null | awk '/^  --?[a-zA-Z]/ {
        option = $1; value = $2 ~ /^[A-Z]+$/ ? $2 : "-"
        sub(/^ +[^ ]+ +([A-Z]+ +)?/, ""); print option "\t" value "\t" $0 }'
    printf '%s\t%s\t%s\n' --url URL 'the service' --layout NAME 'how locks are stored there' \
        --verbose - 'tell more' --help - 'print help'
end

# Left out are names with quotes, backslashes or control characters, which JSON escapes, and names that the
# command would take for options.
function __pawl_names
    timeout 5 $argv ls --json 2>/dev/null | grep -o '"name":"[^-"\\\\][^"\\\\]*"' |
        sed 's/^"name":"//; s/"$//'
end

function __pawl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l pawl $words[1]
    set -l service $pawl
    set -l command
    set -l sub
    set -l want
    set -l dashes 0
    set -l argument 0

    for word in $words[2..]
        if test -n "$want"
            contains -- $want -u --url; and set service $pawl -u $word
            set want
        else if test $dashes = 1
            set argument (math $argument + 1)
        else if test "$word" = --
            set dashes 1
            set argument 0
        else if string match -q -- '-*' $word
            if contains -- $word -u --url --layout
                or __pawl_options $pawl $command | string match -qr -- "^$word\t[A-Z]"
                set want $word
            end
        else if test -z "$command"
            set command $word
        else if test "$command" = latch -a -z "$sub"
            set sub $word
        else
            set argument (math $argument + 1)
        end
    end

    if contains -- "$want" -u --url
        printf '%s\n' local: memory: redis:// rediss:// redis+unix:// redis+sentinel:// \
            redis+cluster:// postgres:// mysql:// etcd:// zk:// quorum: trace: fault:
    else if test "$want" = --layout
        printf '%s\n' pawl redisson advisory session
    else if test -n "$want"
        return
    else if test $dashes = 1 -a "$command" = run
        if test $argument = 0
            __fish_complete_command
        end
        __fish_complete_path $current
    else if string match -q -- '-*' $current
        __pawl_options $pawl $command | string replace -r '\t[^\t]*\t' '\t' | sort -u
    else if test -z "$command" -o "$command" = help
        __pawl_commands $pawl
    else if test "$command" = latch -a -z "$sub"
        printf '%s\n' set down wait get
    else if test $argument = 0; and contains -- $command run show ls break latch
        __pawl_names $service
    end
end

complete -c pawl -f -k -a '(__pawl_complete)'

# bash completion for pawl: commands, options, and the names of locks.
# SPDX-License-Identifier: Apache-2.0
#
# Commands and options come from `pawl help`, so that this file never lags behind the command; names
# come from `pawl ls` on the service that the line names. The line is split here and not taken from
# COMP_WORDS, where bash cuts words at each colon, as of a URL.

# The first block of the overview lists the commands.
_pawl_commands() {
    "$1" help 2>/dev/null | awk '/^$/ { block++ } block == 1 && /^  [a-z]/ { print $1 }'
}

# "OPTION VALUE" or "OPTION" in each line.
_pawl_options() {
    "$1" help "$2" 2>/dev/null | awk '/^  --?[a-zA-Z]/ { print $1, $2 ~ /^[A-Z]+$/ ? $2 : "" }'
    printf '%s\n' '--url URL' '--layout NAME' '--verbose' '--help'
}

# Left out are names with quotes, backslashes or control characters, which JSON escapes, and names that the
# command would take for options.
_pawl_names() {
    timeout 5 "$@" ls --json 2>/dev/null | grep -o '"name":"[^-"\\][^"\\]*"' | sed 's/^"name":"//; s/"$//'
}

# Offer the lines of stdin that begin with $1. $2: characters to put behind each.
_pawl_offer() {
    local line cur=$1 cut
    cut=${cur%"${cur##*[:=@]}"} # bash has cut the word there
    while IFS= read -r line; do
        [[ $line == "$cur"* ]] || continue
        line=${line#"$cut"}
        printf -v line '%q' "$line"
        COMPREPLY+=("$line$2")
    done
}

_pawl_urls() {
    printf '%s\n' local: memory: redis:// rediss:// redis+unix:// redis+sentinel:// \
        redis+cluster:// postgres:// mysql:// etcd:// zk:// quorum: trace: fault:
}

_pawl() {
    local pawl=$1 cur= command= sub= dashes= argument=0 word previous= want= i
    local -a words service
    local line=${COMP_LINE:0:COMP_POINT}

    COMPREPLY=()
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] || { cur=${words[-1]}; unset 'words[-1]'; }
    cur=${cur#[\"\']}
    service=("$pawl")
    for ((i = 1; i < ${#words[@]}; i++)); do
        word=${words[i]//[\"\']/}
        if [[ -n $want ]]; then
            [[ $want == -u || $want == --url ]] && service=("$pawl" -u "$word" "${service[@]:3}")
            want=
        elif [[ -n $dashes ]]; then
            argument=$((argument + 1))
        elif [[ $word == -- ]]; then
            dashes=$i argument=0
        elif [[ $word == -* ]]; then
            _pawl_takes_value "$pawl" "$command" "$word" && want=$word
        elif [[ -z $command ]]; then
            command=$word
        elif [[ $command == latch && -z $sub ]]; then
            sub=$word
        else
            argument=$((argument + 1))
        fi
    done

    if [[ $want == -u || $want == --url ]]; then
        compopt -o nospace 2>/dev/null
        _pawl_offer "$cur" < <(_pawl_urls)
    elif [[ $want == --layout ]]; then
        _pawl_offer "$cur" <<<$'pawl\nredisson\nadvisory\nsession'
    elif [[ -n $want ]]; then
        return
    elif [[ -n $dashes && $command == run ]]; then
        if ((argument)) || [[ $cur == */* ]]; then
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        else
            mapfile -t COMPREPLY < <(compgen -c -- "$cur" | sort -u)
        fi
    elif [[ $cur == -* ]]; then
        _pawl_offer "$cur" < <(_pawl_options "$pawl" "$command" | cut -d' ' -f1 | sort -u)
    elif [[ -z $command || $command == help ]]; then
        _pawl_offer "$cur" < <(_pawl_commands "$pawl"; [[ -n $command ]] || echo help)
    elif [[ $command == latch && -z $sub ]]; then
        _pawl_offer "$cur" <<<$'set\ndown\nwait\nget'
    elif ((!argument)) && [[ $command == @(run|show|ls|break|latch) ]]; then
        _pawl_offer "$cur" < <(_pawl_names "${service[@]}")
    fi
}

_pawl_takes_value() { # PAWL COMMAND OPTION
    [[ $3 != *=* ]] || return 1
    [[ $3 == -u || $3 == --url || $3 == --layout ]] ||
        _pawl_options "$1" "$2" | grep -qE -- "^$3 [A-Z]"
}

complete -F _pawl pawl

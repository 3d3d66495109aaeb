# bash completion for autopar. The rows are `autopar help --tables rows`: command, option, argument.
IFS= read -r -d '' _autopar_rows <<'ROWS' || true # at the end of the text it says no
@ROWS@
ROWS

# Words for an argument like text|json|ir; files or folders for one that is a path.
_autopar_value() {
    local argument=$1 cur=$2
    case $argument in
    N | S | X | WORK | NAME | NAME=* | PREFIX | CPU | BYTES) ;;
    *DIR | D)
        compopt -o filenames 2>/dev/null || true
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        ;;
    *[A-Z]*)
        compopt -o filenames 2>/dev/null || true
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        ;;
    *) mapfile -t COMPREPLY < <(compgen -W "${argument//|/ }" -- "$cur") ;;
    esac
}

_autopar() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    local c option argument names="" options="" subject="" value="" waits=""
    COMPREPLY=()
    if [[ $cur == = ]]; then # --option=: bash makes three words of it
        cur=
    elif [[ $prev == = && $COMP_CWORD -ge 2 ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    while IFS=$'\t' read -r c option argument; do
        [[ -n $c ]] || continue
        if [[ $option == : ]]; then
            names+=" $c"
            if [[ $c == "$command" ]]; then subject=$argument; fi
        elif [[ $c == "$command" ]]; then
            options+=" $option"
            if [[ $option == "$prev" && -n $argument ]]; then
                waits=yes
                value=$argument
            fi
        fi
    done <<<"$_autopar_rows"
    if ((COMP_CWORD == 1)) || [[ $command == help ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$names --help --version" -- "$cur")
    elif [[ -n $waits ]]; then
        _autopar_value "$value" "$cur"
    elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    elif [[ -n $subject ]]; then
        compopt -o filenames 2>/dev/null || true
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}
complete -F _autopar autopar

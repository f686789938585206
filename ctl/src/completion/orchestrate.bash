# Completion of orchestrate for bash.
_clap_complete_orchestrate() {
    local IFS=$'\013'
    # bash also ends words at = and :, which are parts of endpoints and of options with a value. Words
    # without white space between them are one word.
    local words=() rest=$COMP_LINE before word i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        before=$rest
        rest=${rest#"${rest%%[![:space:]]*}"}
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $rest == "$before" ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#"$word"}
    done
    local last=$((${#words[@]} - 1))
    # Nothing that stands behind the cursor, and nothing that bash keeps as it is.
    if [[ ${COMP_WORDS[COMP_CWORD]} != [=:] ]]; then
        words[last]=${words[last]%"${COMP_WORDS[COMP_CWORD]}"}$2
    fi
    local kept=${words[last]%"$2"}
    local space=true
    compopt +o nospace 2>/dev/null && space=false
    # shellcheck disable=SC2207 # IFS separates the words; bash 3 has no mapfile
    COMPREPLY=($(
        _CLAP_IFS="$IFS" \
            _CLAP_COMPLETE_INDEX="$last" \
            _CLAP_COMPLETE_COMP_TYPE="$COMP_TYPE" \
            _CLAP_COMPLETE_SPACE="$space" \
            _ORCHESTRATE_COMPLETE=bash \
            orchestrate -- "${words[@]}" 2>/dev/null
    )) || COMPREPLY=()
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    if [[ $space == false && ${COMPREPLY-} =~ [=/:]$ ]]; then
        compopt -o nospace
    fi
}
if ((BASH_VERSINFO[0] > 4 || BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 4)); then
    complete -o nospace -o bashdefault -o nosort -F _clap_complete_orchestrate orchestrate
else
    complete -o nospace -o bashdefault -F _clap_complete_orchestrate orchestrate
fi

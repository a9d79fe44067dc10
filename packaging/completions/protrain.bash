# Completion of `protrain` for bash. It reads the command's own help, so it always fits the installed version.
_protrain() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    words=$("$1" --help 2>/dev/null | sed -nE '/^Subcommands:/,$ {/not available/d; s/^  ([a-z]+) .*/\1/p}')
    words+=" --help --version"
  elif [[ $current == -* ]]; then
    words=$("$1" "${COMP_WORDS[1]}" --help 2>/dev/null | sed -nE '/not available/d; s/^  (-h,)?(--[a-z0-9-]+) .*/\2/p')
  elif [[ $before == --* ]]; then  # the values of a flag whose help lists them, as {a,b} or (a|b)
    words=$("$1" "${COMP_WORDS[1]}" --help 2>/dev/null |
      sed -nE "s/^  $before .*[{(]([a-z0-9_]+([,|][a-z0-9_]+)+)[})].*/\1/p" | tr ',|' '  ')
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _protrain protrain  # default: names of files, if _protrain finds nothing

# Completion of `protrain` for fish. It reads the command's own help, so it always fits the installed version.
function __protrain_flags
    set -l words (commandline -opc)
    protrain $words[2] --help | string match -v '*not available*' |
        string replace -rf '^  (?:-h,)?(--[a-z0-9-]+) (?:.* )? +(\S.*)$' '$1\t$2'
end
function __protrain_values  # the values of a flag whose help lists them, as {a,b} or (a|b)
    set -l words (commandline -opc)
    protrain $words[2] --help | string match -rg -- "^  $words[-1] .*[{(]([a-z0-9_]+(?:[,|][a-z0-9_]+)+)[})]" |
        string split -n , | string split -n '|'
end
complete -c protrain -n __fish_use_subcommand -f -a "(protrain --help | string match -v '*not available*' |
    string replace -rf '^  ([a-z]+) +(.*)' '\$1\t\$2')"
complete -c protrain -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -a '(__protrain_flags)'
complete -c protrain -n 'not __fish_use_subcommand' -a '(__protrain_values)'

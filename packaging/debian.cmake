# Adapts installed files to Debian's rules. cpack runs this on the files that it is about to pack.
set(packed ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
file(GLOB_RECURSE texts ${packed}/protrain.1 ${packed}/changelog)
foreach(text ${texts})
  execute_process(COMMAND gzip -9n ${text} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(GLOB_RECURSE binaries ${packed}/*/usr/bin/protrain ${packed}/libprotrain_*.so ${packed}/libprotrain.so.*.*)
foreach(binary ${binaries})
  file(RPATH_REMOVE FILE ${binary})  # the loader finds libraries in the system's folders without it
endforeach()
file(GLOB folders ${packed}/*/usr/share/zsh)
foreach(folder ${folders})
  file(RENAME ${folder}/site-functions ${folder}/vendor-completions)  # site-functions is for the administrator
endforeach()

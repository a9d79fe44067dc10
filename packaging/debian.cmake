# cpack runs this over the files that it is about to pack. Debian wants some of them differently from `cmake --install`.
set(packed ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
file(GLOB_RECURSE texts ${packed}/protrain.1 ${packed}/changelog)
foreach(text ${texts})
  execute_process(COMMAND gzip -9n ${text} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(GLOB_RECURSE binaries ${packed}/*/usr/bin/protrain ${packed}/libprotrain_*.so)
foreach(binary ${binaries})
  file(RPATH_REMOVE FILE ${binary})  # the loader finds the system's libraries anyway
endforeach()
file(GLOB folders ${packed}/*/usr/share/zsh)
foreach(folder ${folders})
  file(RENAME ${folder}/site-functions ${folder}/vendor-completions)  # site-functions belong to the administrator
endforeach()

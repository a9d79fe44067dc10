# libprotrain.a: all rooms linked into one object in which only protrain_* stays global. So our C++ names cannot clash
# with those of a program, and our copies of inline functions cannot replace the program's.

# A program that links libprotrain.a needs these libraries too, and the folders of those that are not in the system's.
# protrain.pc and the CMake package both name them.
set(PROTRAIN_PRIVATE_LIBRARIES protobuf-lite dnnl uring gomp stdc++ m pthread)
foreach(library ${Protobuf_LITE_LIBRARY_RELEASE} ${DNNL_LIBRARY} ${URING_LINK_LIBRARIES})
  cmake_path(GET library PARENT_PATH folder)
  if(folder AND NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES AND NOT CMAKE_SYSROOT)
    list(PREPEND PROTRAIN_PRIVATE_LIBRARIES -L${folder})
  endif()
endforeach()
list(REMOVE_DUPLICATES PROTRAIN_PRIVATE_LIBRARIES)

if(NOT PROTRAIN_STATIC OR PROTRAIN_SANITIZE)
  return()
endif()

string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
get_directory_property(options COMPILE_OPTIONS)
if(CMAKE_INTERPROCEDURAL_OPTIMIZATION OR CMAKE_INTERPROCEDURAL_OPTIMIZATION_${type} OR
   "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}} ${options}" MATCHES "-flto")
  message(STATUS "The static library is left out: objects of -flto are linked by the compiler alone")
  return()
endif()

# Finds GNU's ld, nm and objcopy, also if the compiler brings LLVM's: ld.lld lacks --force-group-allocation.
function(is_gnu result program)
  execute_process(COMMAND ${program} --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(NOT version MATCHES "^GNU (ld|nm|objcopy)")
    set(${result} OFF PARENT_SCOPE)
  endif()
endfunction()
foreach(tool LINKER NM OBJCOPY)
  string(TOLOWER ${tool} name)
  string(REPLACE linker ld.bfd name ${name})
  set(names ${CMAKE_${tool}} ${CMAKE_CXX_LIBRARY_ARCHITECTURE}-${name})
  if(NOT CMAKE_CROSSCOMPILING)
    list(APPEND names ${name})
  endif()
  find_program(PROTRAIN_${tool} NAMES ${names} VALIDATOR is_gnu)
  mark_as_advanced(PROTRAIN_${tool})
  if(NOT PROTRAIN_${tool})
    message(STATUS "The static library is left out: there is no ${name} of GNU's")
    return()
  endif()
endforeach()

get_property(room_objects GLOBAL PROPERTY ROOM_OBJECTS)
set(object ${CMAKE_CURRENT_BINARY_DIR}/libprotrain.o)
# --force-group-allocation dissolves the COMDAT groups of inline code. Otherwise the program's linker would drop every
# group that the program has too, although our local symbols still refer to it.
# Symbols that are unique in a whole process (nm marks them u) must become weak before they can become local.
# objcopy fails if the list is empty, so it begins with a name that nothing has.
add_custom_command(
  OUTPUT ${object}
  COMMAND ${PROTRAIN_LINKER} -r --force-group-allocation -o ${object} $<TARGET_OBJECTS:protrain> ${room_objects}
  COMMAND ${PROTRAIN_NM} -g ${object} | sed -n -e "1i none" -e "s/.* u //p" > ${object}.unique
  COMMAND ${PROTRAIN_OBJCOPY} --weaken-symbols=${object}.unique ${object}
  COMMAND ${PROTRAIN_OBJCOPY} --wildcard --keep-global-symbol=protrain_* ${object}
  DEPENDS $<TARGET_OBJECTS:protrain> ${room_objects}
  COMMAND_EXPAND_LISTS VERBATIM)
add_library(protrain_static STATIC ${object})
add_library(protrain::protrain_static ALIAS protrain_static)
set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set_target_properties(protrain_static PROPERTIES OUTPUT_NAME protrain LINKER_LANGUAGE CXX)
target_include_directories(protrain_static INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                     $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(protrain_static INTERFACE ${PROTRAIN_PRIVATE_LIBRARIES})

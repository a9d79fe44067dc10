# libprotrain.a: all rooms linked into one object in which only protrain_* stays global. So our C++ names cannot clash
# with those of a program, and our copies of inline functions cannot replace the program's.

# A program that links libprotrain.a needs these libraries too; protrain.pc and the CMake package both name them.
set(PROTRAIN_PRIVATE_LIBRARIES protobuf-lite dnnl uring gomp stdc++ m pthread)

if(NOT PROTRAIN_STATIC OR PROTRAIN_SANITIZE)
  return()
endif()
get_property(room_objects GLOBAL PROPERTY ROOM_OBJECTS)
set(object ${CMAKE_CURRENT_BINARY_DIR}/libprotrain.o)
# --force-group-allocation dissolves the COMDAT groups of inline code. Otherwise the program's linker would drop every
# group that the program has too, although our local symbols still refer to it.
# Symbols that are unique in a whole process (nm marks them u) must become weak before they can become local.
add_custom_command(
  OUTPUT ${object}
  COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${object} $<TARGET_OBJECTS:protrain> ${room_objects}
  COMMAND ${CMAKE_NM} -g ${object} | sed -n "s/.* u //p" > ${object}.unique
  COMMAND ${CMAKE_OBJCOPY} --weaken-symbols=${object}.unique ${object}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=protrain_* ${object}
  DEPENDS $<TARGET_OBJECTS:protrain> ${room_objects}
  COMMAND_EXPAND_LISTS VERBATIM)
add_library(protrain_static STATIC ${object})
set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set_target_properties(protrain_static PROPERTIES OUTPUT_NAME protrain LINKER_LANGUAGE CXX)
target_include_directories(protrain_static INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                     $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(protrain_static INTERFACE ${PROTRAIN_PRIVATE_LIBRARIES})

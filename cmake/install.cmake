# Installs the library, its header, the command with its manual page and completions, a pkg-config file and a CMake
# package. The installed folder can be moved as a whole. The components are runtime, dev and command.
include(CMakePackageConfigHelpers)

install(TARGETS protrain EXPORT protrainTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
if(TARGET protrain_static)
  install(TARGETS protrain_static EXPORT protrainTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/include/protrain.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)

if(PROTRAIN_TOOLS)
  file(RELATIVE_PATH library_from_command /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(protrain_command PROPERTIES INSTALL_RPATH "$ORIGIN/${library_from_command}")
  install(TARGETS protrain_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/protrain.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)
  set(completions ${PROJECT_SOURCE_DIR}/packaging/completions)
  install(FILES ${completions}/protrain.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME protrain COMPONENT command)
  install(FILES ${completions}/_protrain DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT command)
  install(FILES ${completions}/protrain.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
          COMPONENT command)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/protrain)
install(EXPORT protrainTargets NAMESPACE protrain:: DESTINATION ${package_dir} COMPONENT dev)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/protrain-config.cmake.in protrain-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(protrain-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/protrain-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/protrain-config-version.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# The relative path from the .pc file's folder to the prefix, so that the file does not hold the prefix.
file(RELATIVE_PATH PROTRAIN_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" PROTRAIN_PC_PREFIX "${PROTRAIN_PC_PREFIX}")
list(TRANSFORM PROTRAIN_PRIVATE_LIBRARIES REPLACE "^([^-].*)$" "-l\\1" OUTPUT_VARIABLE PROTRAIN_PC_PRIVATE)
list(JOIN PROTRAIN_PC_PRIVATE " " PROTRAIN_PC_PRIVATE)
configure_file(${PROJECT_SOURCE_DIR}/pkgconfig/protrain.pc.in protrain.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/protrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# What is installed: the library, its header, the command, a pkg-config file and a CMake package. All of it can be moved.
include(CMakePackageConfigHelpers)

install(TARGETS protrain EXPORT protrainTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/include/protrain.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
if(PROTRAIN_TOOLS)
  set_target_properties(protrain_command PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS protrain_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/protrain)
install(EXPORT protrainTargets NAMESPACE protrain:: DESTINATION ${package_dir} COMPONENT dev)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/protrain-config.cmake.in protrain-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(protrain-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/protrain-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/protrain-config-version.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# From the folder of the .pc file back to the prefix, so that the file holds no absolute path.
file(RELATIVE_PATH PROTRAIN_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" PROTRAIN_PC_PREFIX "${PROTRAIN_PC_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/pkgconfig/protrain.pc.in protrain.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/protrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# `cpack` in a build folder makes Debian packages: libprotrain0 (the library), libprotrain-dev (for building against
# it), protrain (the command), and one for each of the transports Open MPI, MPICH and Gloo that was built. No package
# holds the plugins for CUDA and NCCL, because dpkg may not know NVIDIA's libraries. Nothing is built a second time.
# A build that was configured with the prefix /usr has its libraries in Debian's multiarch folder.
# tests/install/package.sh makes and checks the packages.
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL runtime dev command)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/debian.cmake)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_PACKAGE_CONTACT "libprotrain <libprotrain@packages.invalid>")
if(DEFINED ENV{DEBFULLNAME} AND DEFINED ENV{DEBEMAIL})  # Debian's names for whoever makes the packages
  set(CPACK_PACKAGE_CONTACT "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY >=)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains ONNX models on memory that you name")
function(package component name section contents)
  string(TOUPPER ${component} COMPONENT)
  set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${COMPONENT}_DESCRIPTION
"libprotrain opens an ONNX file, builds its gradient graph, chooses where
weights, optimizer state and activations rest, and trains: models larger
than the memory too, with the same bits under every choice.
.
This package has ${contents}." PARENT_SCOPE)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/copyright ${PROJECT_BINARY_DIR}/changelog
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()
package(runtime libprotrain0 libs "the shared library")
package(dev libprotrain-dev libdevel "what programs in C are built with, by pkg-config or CMake")
package(command protrain science "the command")
set(starter_openmpi openmpi-bin)
set(starter_mpich mpich)
foreach(transport openmpi mpich gloo)
  if(TARGET protrain_${transport})
    string(TOUPPER ${transport} COMPONENT)
    package(${transport} libprotrain-${transport} libs "what connects the ranks of a session by ${transport}")
    list(APPEND CPACK_COMPONENTS_ALL ${transport})
    list(APPEND transports libprotrain-${transport})
    set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_DEPENDS "libprotrain0 (= ${PROJECT_VERSION})")
    set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_RECOMMENDS "${starter_${transport}}")
    set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/triggers)
  endif()
endforeach()
if(TARGET protrain_cuda)
  message(STATUS "cpack leaves out the plugins for CUDA and NCCL: dpkg may not know NVIDIA's libraries")
endif()
list(JOIN transports ", " CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libprotrain0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS "g++, libprotobuf-dev, libdnnl-dev, liburing-dev")  # for libprotrain.a
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "libprotrain0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/triggers)

string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH if that is set
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/changelog @ONLY CONTENT [[
libprotrain (@PROJECT_VERSION@) unstable; urgency=medium

  * Release @PROJECT_VERSION@.

 -- @CPACK_PACKAGE_CONTACT@  @now@
]])
include(CPack)

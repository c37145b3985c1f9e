# The interface of plug-ins: which headers their authors see, and what it is called.
#
# TROUPE_INTERFACE is made from the text of these headers, the compiler and LibTorch: whoever was built against
# the same has the same layout of every value that crosses the border.

set(TROUPE_PLUGIN_HEADERS
  actors/link/observing.hpp
  actors/observing/own_listener.hpp
  app/observing_hub.hpp
  app/program.hpp
  app/watch.hpp
  balancer/microbatches/policies.hpp
  balancer/loads/workload.hpp
  engine/execution/device.hpp
  engine/execution/group_state.hpp
  engine/execution/packing.hpp
  engine/execution/stage_filter.hpp
  engine/execution/stage_kinds.hpp
  engine/execution/stage_layers.hpp
  engine/execution/stage_program.hpp
  engine/execution/stage_traffic.hpp
  engine/iteration/kind_costs.hpp
  engine/iteration/reports.hpp
  kernels/activations.hpp
  kernels/bitfield_attention.hpp
  kernels/cross_entropy.hpp
  kernels/deferred_gradients.hpp
  kernels/linear.hpp
  kernels/mask_tiles.hpp
  kernels/norms.hpp
  kernels/packed_attention.hpp
  kernels/rotary.hpp
  kernels/token_embedding.hpp
  kernels/window_convolution.hpp
  models/auxiliary_loss.hpp
  models/built_in_layers.hpp
  models/built_on.hpp
  models/by_segment.hpp
  models/encoder_family.hpp
  models/family/block_work.hpp
  models/family/description.hpp
  models/family/family.hpp
  models/family/registry.hpp
  models/family/size_problems.hpp
  models/encoder_block.hpp
  models/family/widths.hpp
  models/layer.hpp
  models/linear_layer.hpp
  models/llama/family.hpp
  models/own_update.hpp
  models/parameter_layer.hpp
  models/plugin.hpp
  runtime/data/formats/record.hpp
  runtime/data/formats/registry.hpp
  runtime/data/reading/byte_tokenizer.hpp
  runtime/data/reading/encode_text.hpp
  runtime/data/reading/image_patches.hpp
  runtime/data/reading/options.hpp
  runtime/data/reading/rgb_image.hpp
  runtime/data/samples/bad_sample.hpp
  runtime/data/samples/dataset.hpp
  runtime/data/samples/decode_sample.hpp
  runtime/data/samples/decoded_samples.hpp
  runtime/observe/trace_event.hpp
  runtime/observers/observer.hpp
  runtime/observers/observing.hpp
  runtime/observers/watch.hpp
  runtime/plugins/entry_point.hpp
  runtime/policies/registry.hpp
  runtime/schedules/registry.hpp
  runtime/state/adamw.hpp
  runtime/state/tensor_hash.hpp
  runtime/vocabulary/family_config.hpp
  runtime/vocabulary/iteration_plan.hpp
  runtime/vocabulary/layer_work.hpp
  runtime/vocabulary/logit_chunks.hpp
  runtime/vocabulary/media_input.hpp
  runtime/vocabulary/memory_kind.hpp
  runtime/vocabulary/model_config.hpp
  runtime/vocabulary/model_graph.hpp
  runtime/vocabulary/model_state.hpp
  runtime/vocabulary/parallel_plan.hpp
  runtime/vocabulary/parallelism.hpp
  runtime/vocabulary/result.hpp
  runtime/vocabulary/route.hpp
  runtime/vocabulary/sample_pieces.hpp
  runtime/vocabulary/sample_shape.hpp
  runtime/vocabulary/sum_order.hpp
  runtime/vocabulary/token_mask.hpp
  runtime/vocabulary/tokenizer_size.hpp
  runtime/vocabulary/units.hpp
  scheduler/iteration/list_schedule.hpp
  scheduler/iteration/schedules.hpp
  scheduler/iteration/task_graph.hpp)

set(text "")
foreach(header ${TROUPE_PLUGIN_HEADERS})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${header})
  file(SHA256 ${CMAKE_SOURCE_DIR}/${header} hash)
  string(APPEND text "${header} ${hash}\n")
endforeach()
string(SHA256 hash "${text}")
string(SUBSTRING ${hash} 0 12 hash)
set(torch_version unknown)
if(EXISTS ${TORCH_DIR}/version.py)
  file(STRINGS ${TORCH_DIR}/version.py torch_version REGEX "^__version__")
  string(REGEX REPLACE ".*'(.*)'" "\\1" torch_version "${torch_version}")
endif()
set(TROUPE_INTERFACE "Troupe ${PROJECT_VERSION}, headers ${hash}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, LibTorch ${torch_version}")
if(TROUPE_SANITIZE)
  string(APPEND TROUPE_INTERFACE ", sanitizers ${TROUPE_SANITIZE}")
endif()

# All components as one archive, for programs of the user's own: lib/libtroupe_engine.a of the build folder.
# Leaves in `out` which other libraries it needs, as Dependencies.cmake names them.
function(_troupe_one_archive out)
  set(all)
  _troupe_closure(troupe_commands all)
  set(archive lib/libtroupe_engine.a)
  set(script "CREATE ${archive}\n")
  # Relative, since these scripts cannot quote.
  string(APPEND script "ADDLIB $<PATH:RELATIVE_PATH,$<TARGET_FILE:troupe_commands>,${CMAKE_BINARY_DIR}>\n")
  set(parts troupe_commands)
  set(others)
  foreach(library ${all})
    if(NOT library MATCHES "^troupe_")
      list(APPEND others ${library})
      continue()
    endif()
    get_target_property(type ${library} TYPE)
    if(type STREQUAL STATIC_LIBRARY)
      string(APPEND script "ADDLIB $<PATH:RELATIVE_PATH,$<TARGET_FILE:${library}>,${CMAKE_BINARY_DIR}>\n")
      list(APPEND parts ${library})
    endif()
  endforeach()
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/lib/archive.mri CONTENT "${script}SAVE\nEND\n")
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/${archive} DEPENDS ${parts} WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
    COMMENT "Joining all components in libtroupe_engine.a"
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} -M < lib/archive.mri)
  add_custom_target(engine_archive ALL DEPENDS ${CMAKE_BINARY_DIR}/${archive})
  set(${out} ${others} PARENT_SCOPE)
endfunction()

# `cmake --install`: the program, all components as a library, the headers above, and a CMake package that builds
# plug-ins and programs against them.
function(troupe_install)
  include(GNUInstallDirs)
  _troupe_one_archive(TROUPE_ENGINE_NEEDS)
  get_target_property(TROUPE_ENGINE_OPTIONS troupe_commands INTERFACE_LINK_OPTIONS)
  install(FILES ${CMAKE_BINARY_DIR}/lib/libtroupe_engine.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS troupe RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  foreach(header ${TROUPE_PLUGIN_HEADERS})
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${CMAKE_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe/${folder})
  endforeach()
  set(made ${CMAKE_BINARY_DIR}/package)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)
  include(CMakePackageConfigHelpers)
  configure_package_config_file(cmake/troupe-config.cmake.in ${made}/troupe-config.cmake
    INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR)
  write_basic_package_version_file(${made}/troupe-config-version.cmake COMPATIBILITY ExactVersion)
  install(FILES ${made}/troupe-config.cmake ${made}/troupe-config-version.cmake cmake/Dependencies.cmake
    DESTINATION ${package})
endfunction()

# libhorovod.so exports hvd_* and five names of the original Horovod's library, and needs no library of which its users
# may have another version.
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" lines "${symbols}")
set(count 0)
set(original 0)
foreach(line IN LISTS lines)
  if(line MATCHES " A HVD_1(@@HVD_1)?$")  # the version's own symbol; llvm-nm prints the symbol twice
    continue()
  elseif(line MATCHES " T hvd_[a-z_]+(@@HVD_1)?$")
    math(EXPR count "${count} + 1")
  elseif(line MATCHES " T horovod_(rank|size|local_rank|local_size|shutdown)(@@HVD_1)?$")
    math(EXPR original "${original} + 1")
  else()
    message(FATAL_ERROR "exported, but not hvd_*: ${line}")
  endif()
endforeach()
if(count LESS 28 OR NOT original EQUAL 5)
  message(FATAL_ERROR "only ${count} functions and ${original} names of the original are exported")
endif()
execute_process(COMMAND ${READELF} -d ${LIBRARY} OUTPUT_VARIABLE dynamic
                COMMAND_ERROR_IS_FATAL ANY)
foreach(name IN ITEMS libcrypto libssl libspdlog libfmt libboost libprotobuf)
  if(dynamic MATCHES "NEEDED[^\n]*${name}")
    message(FATAL_ERROR "it needs ${name}")
  endif()
endforeach()

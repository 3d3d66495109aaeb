# cmake -DAUTOPAR=... -DSOURCE=... -DOUT=... [-DCOMMAND=...] [-DSCDOC=...] -P generate.cmake
# Copies SOURCE with @NAME@, @OPTIONS@ and @ROWS@ replaced by what `autopar help --tables` prints, so that manual and
# completion cannot say anything else than the program; SCDOC makes a manual page of it.
file(READ ${SOURCE} text)
foreach(part NAME OPTIONS ROWS)
  string(FIND "${text}" "@${part}@" at)
  if(at GREATER -1)
    string(TOLOWER ${part} table)
    execute_process(COMMAND ${AUTOPAR} help --tables ${table} ${COMMAND} OUTPUT_VARIABLE printed
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE "@${part}@" "${printed}" text "${text}")
  endif()
endforeach()
get_filename_component(folder ${OUT} DIRECTORY)
file(MAKE_DIRECTORY ${folder})
if(SCDOC)
  file(WRITE ${OUT}.scd "${text}")
  set(ENV{SOURCE_DATE_EPOCH} 0) # the same bytes every day
  execute_process(COMMAND ${SCDOC} INPUT_FILE ${OUT}.scd OUTPUT_FILE ${OUT} COMMAND_ERROR_IS_FATAL ANY)
else()
  file(WRITE ${OUT} "${text}")
endif()

# Gives the target openjev::cublasLt. Header and library come from the same folder, so that they are of one version; it is
# the first that has both of:
#   CUBLAS_ROOT, a CMake or environment variable: a folder with include/ and lib/ or lib64/
#   nvidia/cu<major> on the sys.path of Python_EXECUTABLE: the Python package nvidia-cublas, which torch uses too
#   the toolkit of the CUDA compiler
# Nothing is cached: an isolated build's Python environment is a different folder every time.
find_package(CUDAToolkit REQUIRED)

set(_roots ${CUBLAS_ROOT} $ENV{CUBLAS_ROOT})
if(Python_EXECUTABLE)
  set(_package "nvidia/cu${CUDAToolkit_VERSION_MAJOR}")
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import sys; print(';'.join(f'{p}/${_package}' for p in sys.path if p))"
    OUTPUT_VARIABLE _packages OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND _roots ${_packages})
endif()
list(APPEND _roots ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT})

unset(CublasLt_INCLUDE_DIR)
unset(CublasLt_LIBRARY)
foreach(_root IN LISTS _roots)
  if(NOT EXISTS "${_root}/include/cublasLt.h")
    continue()
  endif()
  # The Python package has only the name with the version.
  find_library(CublasLt_LIBRARY NAMES libcublasLt.so.${CUDAToolkit_VERSION_MAJOR} libcublasLt.so
    PATHS "${_root}/lib" "${_root}/lib64" NO_DEFAULT_PATH NO_CACHE)
  if(CublasLt_LIBRARY)
    set(CublasLt_INCLUDE_DIR "${_root}/include")
    break()
  endif()
endforeach()

if(EXISTS "${CublasLt_INCLUDE_DIR}/cublas_api.h")
  file(STRINGS "${CublasLt_INCLUDE_DIR}/cublas_api.h" _lines REGEX "^#define CUBLAS_VER_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM _lines REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN _lines "." CublasLt_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CublasLt
  REQUIRED_VARS CublasLt_LIBRARY CublasLt_INCLUDE_DIR
  VERSION_VAR CublasLt_VERSION
  REASON_FAILURE_MESSAGE "pip install 'nvidia-cublas>=13.1,<14', or set CUBLAS_ROOT to a folder with include/cublasLt.h and lib/")
if(CublasLt_FOUND AND NOT TARGET openjev::cublasLt)
  add_library(openjev::cublasLt SHARED IMPORTED)
  set_target_properties(openjev::cublasLt PROPERTIES
    IMPORTED_LOCATION "${CublasLt_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CublasLt_INCLUDE_DIR}")
endif()

#!/bin/sh
# Installs the C library. Needs cargo and a shell. With --from, which takes libraries that were built before, a shell is
# enough.
set -eu

usage() {
    cat <<'END'
install.sh [--prefix DIR] [--libdir DIR] [--includedir DIR] [--destdir DIR] [--from DIR]

Builds the release libraries and installs them with headers, pkg-config and CMake files.

  --prefix DIR      where to install; by default /usr/local
  --libdir DIR      by default PREFIX/lib
  --includedir DIR  by default PREFIX/include
  --destdir DIR     a prefix of each path while copying, for packagers
  --from DIR        take libtourbillon_c.so and libtourbillon_c.a from DIR, and build nothing
END
}

prefix=/usr/local libdir= includedir= destdir= from=
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage && exit 0 ;;
    --prefix=* | --libdir=* | --includedir=* | --destdir=* | --from=*)
        option=${1%%=*} value=${1#*=} && shift
        ;;
    --prefix | --libdir | --includedir | --destdir | --from)
        [ $# -ge 2 ] || { usage >&2 && exit 2; }
        option=$1 value=$2 && shift 2
        ;;
    *) usage >&2 && exit 2 ;;
    esac
    case $option in
    --prefix) prefix=$value ;;
    --libdir) libdir=$value ;;
    --includedir) includedir=$value ;;
    --destdir) destdir=$value ;;
    --from) from=$value ;;
    esac
done
: "${libdir:=$prefix/lib}" "${includedir:=$prefix/include}"
for folder in "$prefix" "$libdir" "$includedir"; do
    case $folder in
    *[\"\'\\\$\#\;\`\(\)\&\|\<\>]* | *[[:cntrl:]]*)
        echo "install.sh: $folder has a character that files of pkg-config or CMake cannot have" >&2 && exit 2
        ;;
    /*) ;;
    *) echo "install.sh: $folder is not an absolute path" >&2 && exit 2 ;;
    esac
done

crate=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$crate/Cargo.toml" | head -n 1)
soname=libtourbillon.so.${version%%.*}

if [ -z "$from" ]; then
    cargo build --release --manifest-path "$crate/Cargo.toml"
    # The folder in which cargo builds.
    target=$(cargo metadata --format-version 1 --no-deps --manifest-path "$crate/Cargo.toml" |
        sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    from=$target/release
fi
for library in libtourbillon_c.so libtourbillon_c.a; do
    [ -f "$from/$library" ] || { echo "install.sh: there is no $from/$library" >&2 && exit 1; }
done

mkdir -p "$destdir$libdir/pkgconfig" "$destdir$libdir/cmake/tourbillon" "$destdir$includedir"
copy() { # mode, from, to
    rm -f "$3"
    cp "$2" "$3"
    chmod "$1" "$3"
}
copy 755 "$from/libtourbillon_c.so" "$destdir$libdir/libtourbillon.so.$version"
copy 644 "$from/libtourbillon_c.a" "$destdir$libdir/libtourbillon.a"
for header in tourbillon.h tourbillon_libevent.h; do
    copy 644 "$crate/include/$header" "$destdir$includedir/$header"
done
ln -sf "libtourbillon.so.$version" "$destdir$libdir/$soname"
ln -sf "$soname" "$destdir$libdir/libtourbillon.so"

# In the flags that pkg-config prints, a backslash stands before a space, as in the shell.
escaped() {
    printf '%s\n' "$1" | sed 's/ /\\ /g'
}
cat >"$destdir$libdir/pkgconfig/tourbillon.pc" <<END
prefix=$(escaped "$prefix")
libdir=$(escaped "$libdir")
includedir=$(escaped "$includedir")
archive=\${libdir}/libtourbillon.a
archive_libs=-lpthread -ldl -lm

Name: tourbillon
Description: A timer engine for servers that arm a timeout for nearly everything
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -ltourbillon
Libs.private: \${archive_libs}
END

cat >"$destdir$libdir/cmake/tourbillon/tourbillon-config.cmake" <<END
include(CMakeFindDependencyMacro)
find_dependency(Threads)
if(NOT TARGET tourbillon::tourbillon)
    add_library(tourbillon::tourbillon SHARED IMPORTED)
    set_target_properties(tourbillon::tourbillon PROPERTIES
        IMPORTED_LOCATION "$libdir/libtourbillon.so.$version"
        IMPORTED_SONAME "$soname"
        INTERFACE_INCLUDE_DIRECTORIES "$includedir")
    add_library(tourbillon::static STATIC IMPORTED)
    set_target_properties(tourbillon::static PROPERTIES
        IMPORTED_LOCATION "$libdir/libtourbillon.a"
        INTERFACE_INCLUDE_DIRECTORIES "$includedir"
        INTERFACE_LINK_LIBRARIES "Threads::Threads;\${CMAKE_DL_LIBS};m")
endif()
END

cat >"$destdir$libdir/cmake/tourbillon/tourbillon-config-version.cmake" <<END
set(PACKAGE_VERSION "$version")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION OR NOT PACKAGE_FIND_VERSION_MAJOR EQUAL "${version%%.*}")
    set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
    if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
        set(PACKAGE_VERSION_EXACT TRUE)
    endif()
endif()
END

# The loader finds a shared library in a folder of its own by its cache.
if [ -z "$destdir" ] && command -v ldconfig >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then
        # Another installation that writes the cache at the same time makes this fail.
        tries=5
        until ldconfig; do
            tries=$((tries - 1))
            [ "$tries" -gt 0 ] || { echo "install.sh: the files are installed, but ldconfig fails" >&2 && exit 1; }
            sleep 1
        done
    else
        echo "run ldconfig as root, so that programs find the shared library"
    fi
fi
echo "installed libtourbillon $version in $destdir$libdir and $destdir$includedir"

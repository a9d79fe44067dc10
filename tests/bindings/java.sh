#!/bin/sh
# Builds the Java binding against the installed build and tests it under -Xcheck:jni. Then tests each way to load the
# native library, and runs the commands of docs/java.md. samples.sh runs the sample.
# usage: java.sh SOURCE BUILD
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
binding=$source/bindings/java
jars=/usr/share/java
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "java.sh: $*" >&2
  exit 1
}

command -v javac >/dev/null || fail "needs a JDK; apt-get install default-jdk-headless"
[ -e $jars/junit-platform-console.jar ] || fail "needs JUnit 5; apt-get install junit5"

XDG_CACHE_HOME=$build/cache # shared with the other tests, so kernels are measured once
export XDG_CACHE_HOME
make_jar() { # PREFIX
  PKG_CONFIG_PATH=$(dirname "$(find "$1" -name protrain.pc)")
  export PKG_CONFIG_PATH
  make -s -C "$binding" OUT="$work/java" CXXFLAGS='-Wall -Wextra -Werror' \
    JAVACFLAGS='-Xlint:all -Xdoclint:all/protected -Xdoclint/package:ai.protrain -Werror'
}
cmake --install "$build" --prefix "$work/first" >/dev/null
make_jar "$work/first"
mv "$work/first" "$work/prefix"  # shows that an installed tree can be moved; the jar must then be made again
make_jar "$work/prefix"
cd "$work"
libdir=$(pkg-config --variable=libdir protrain)
jar=$work/java/protrain.jar

# Runs the JUnit tests. A warning of -Xcheck:jni is a failure; newer versions of JUnit have a warning too. every_code.c makes errors that no call can provoke. It is
# linked with libprotrain, because the JVM loads the native library without making its symbols global.
# shellcheck disable=SC2046
cc -shared -fPIC "$source/tests/bindings/every_code.c" -Wl,--no-as-needed $(pkg-config --cflags --libs protrain) \
  -Wl,-rpath,"$libdir" -o "$work/every_code.so"
junit=$(printf "$jars/%s.jar:" junit-jupiter-api junit-jupiter-engine junit-platform-commons junit-platform-console \
  junit-platform-engine junit-platform-launcher junit-platform-reporting opentest4j apiguardian-api picocli)
javac -Xlint:all,-path,-processing,-classfile,-try -Werror -cp "$jar:$junit" -d "$work/tests" \
  "$binding"/test/ai/protrain/*.java
LD_PRELOAD=$work/every_code.so java -Xcheck:jni -Xms96m -Xmx96m -XX:+AlwaysPreTouch -Dfixtures="$source/tests/fixtures" \
  -cp "$jar:$work/tests:$junit" org.junit.platform.console.ConsoleLauncher --disable-banner \
  --disable-ansi-colors --details=tree --scan-classpath "$work/tests" >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; fail "JUnit's tests have failed"; }
if grep -q -E 'WARNING(: JNI| in native)|FATAL' "$work/log"; then
  cat "$work/log" >&2
  fail "-Xcheck:jni has warned"
fi
grep -q '[1-9][0-9]* tests successful' "$work/log" || fail "no test was run"

# The native library must be found in the jar, by the property protrain.library, and on the library path.
cat >"$work/Version.java" <<'JAVA'
class Version {
  public static void main(String[] arguments) {
    System.out.println(ai.protrain.Protrain.version());
  }
}
JAVA
javac -cp "$jar" -d "$work/version" "$work/Version.java"
native=$(dirname "$(find "$work/java/classes" -name libprotrain_jni.so)")
cp -r "$work/java/classes" "$work/bare"
rm -r "$work/bare/native"
mkdir "$work/tmp"
version=$(pkg-config --modversion protrain)
try() {
  [ "$(java -Xcheck:jni -Djava.io.tmpdir="$work/tmp" "$@" Version)" = "$version" ] || fail "not loaded: java $*"
}
try -cp "$jar:$work/version"
try -cp "$work/bare:$work/version" -Dprotrain.library="$native/libprotrain_jni.so"
try -cp "$work/bare:$work/version" -Djava.library.path="$native"
try --module-path "$jar" --add-modules ai.protrain -cp "$work/version"
[ -z "$(ls "$work/tmp")" ] || fail "the native half was left in java.io.tmpdir"

sh "$source/tests/bindings/page.sh" "$source" "$build" java.md >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; fail "docs/java.md does not run"; }
grep -q '^step 20  loss 4' "$work/log" || { cat "$work/log" >&2; fail "docs/java.md trains otherwise than it says"; }

// Compiles Beast's own code.
#include <boost/beast/src.hpp>

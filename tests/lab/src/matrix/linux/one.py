# Plays one module of rdma-core's own tests, without loading all the others.
import sys
import types
import unittest

package = types.ModuleType('tests')
package.__path__ = ['/tests']
sys.modules['tests'] = package
sys.path.insert(0, '/tests')
from args_parser import parser
import tests.utils  # imports, and is imported by, others: it has to be the first

module = sys.argv.pop(1)
parser.parse_args()
unittest.main(module='tests.' + module)

"""placeholder"""
from pathlib import Path
RESULTS = Path(__file__).resolve().parent / "results"
def main(argv): pass
